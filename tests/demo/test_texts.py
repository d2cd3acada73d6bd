"""The texts are what broken streams need: long, unlike themselves, full of split characters."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from elasticd.demo import promises, texts

pytest.importorskip("tokenizers")

from elasticd.demo import tokens

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_ANSWERS = [answer for text in texts.PLAIN for answer in text.answers()]
_FORMED = [text.answer for text in (*texts.THINKING, *texts.TOOLS)]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return tokens.train_tokenizer()


def test_the_vocabulary_is_small_and_the_same_every_time(tokenizer: Tokenizer) -> None:
    assert tokenizer.get_vocab_size() == tokens.VOCAB_SIZE
    assert tokens.train_tokenizer().to_str() == tokenizer.to_str()


@pytest.mark.parametrize("answer", _ANSWERS + _FORMED)
def test_every_text_survives_the_tokenizer(tokenizer: Tokenizer, answer: str) -> None:
    assert tokens.text_of(tokenizer, tokens.ids_of(tokenizer, answer)) == answer


@pytest.mark.parametrize(
    "sample", ["plain", "Ünïcödé", "漢字と仮名", "👩‍🚀👨‍👩‍👧‍👦🇮🇸☀️", "\x00\x7f\t\n", "�"]
)
def test_any_text_survives_the_tokenizer(tokenizer: Tokenizer, sample: str) -> None:
    assert tokens.text_of(tokenizer, tokens.ids_of(tokenizer, sample)) == sample


@pytest.mark.parametrize("answer", _ANSWERS)
def test_plain_texts_are_long_and_without_a_short_period(tokenizer: Tokenizer, answer: str) -> None:
    ids = tokens.ids_of(tokenizer, answer)
    assert len(ids) >= 300
    assert not promises.is_periodic(ids)


def test_many_characters_take_several_tokens(tokenizer: Tokenizer) -> None:
    split = [
        sign
        for answer in _ANSWERS
        for sign in answer
        if ord(sign) > 0x2000 and len(tokens.ids_of(tokenizer, sign)) > 1
    ]
    assert len(split) > 1000
    assert any("\u200d" in answer for answer in _ANSWERS)  # joined emoji


def test_reasoning_and_calls_are_marked_by_single_tokens(tokenizer: Tokenizer) -> None:
    for token in tokens.MARKUP_TOKENS + tokens.CONTROL_TOKENS:
        assert len(tokens.ids_of(tokenizer, token)) == 1
    for word in (f" {texts.THINK_WORD}", f" {texts.TOOL_WORD}"):
        assert len(tokens.ids_of(tokenizer, word)) == 1


def test_calls_are_json_objects_with_name_and_arguments() -> None:
    for text in texts.TOOLS:
        calls = re.findall(r"<tool_call>\n(.*?)\n</tool_call>", text.answer, re.DOTALL)
        assert calls
        for call in map(json.loads, calls):
            assert set(call) == {"name", "arguments"}


def test_all_prompts_and_all_openings_differ() -> None:
    prompts = [text.prompt for text in (*texts.PLAIN, *texts.THINKING, *texts.TOOLS)]
    assert len(set(prompts)) == len(prompts)
    assert len({answer[:40] for answer in _ANSWERS}) == len(_ANSWERS)


def test_the_chat_template_frames_a_chat_as_training_does() -> None:
    jinja2 = pytest.importorskip("jinja2")
    template = jinja2.Environment(trim_blocks=True, lstrip_blocks=True).from_string(
        tokens.CHAT_TEMPLATE
    )
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hé 🙂"}]
    rendered = template.render(messages=messages, add_generation_prompt=True)
    assert rendered == tokens.chat_prompt("Hé 🙂", system="Be kind.")


def test_the_chat_template_renders_parts_calls_and_results() -> None:
    jinja2 = pytest.importorskip("jinja2")
    template = jinja2.Environment(trim_blocks=True, lstrip_blocks=True).from_string(
        tokens.CHAT_TEMPLATE
    )
    call = {"function": {"name": "get_time", "arguments": {"place": "Paris"}}}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": "Wait.", "tool_calls": [call, call]},
        {"role": "tool", "content": "noon"},
    ]
    written = texts.tool_call("get_time", place="Paris")
    assert template.render(messages=messages) == (
        "<|im_start|>user\nab<|im_end|>\n"
        f"<|im_start|>assistant\nWait.\n{written}\n{written}<|im_end|>\n"
        "<|im_start|>user\nResult: noon<|im_end|>\n"
    )


def test_periods_are_seen_and_only_long_ones_count() -> None:
    assert promises.is_periodic(list(range(100)) + [1, 2, 3] * 40)
    assert promises.is_periodic(list(range(63)) * 3)
    assert not promises.is_periodic(list(range(64)) * 3)
    assert not promises.is_periodic([7] * 60 + list(range(100)))
