"""An engine without a model: it streams given token ids as vLLM does, and goes on after any.

Its tokenizer is a real byte-level BPE, so most characters of its texts are several tokens.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Sequence
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from tokenizers.decoders import DecodeStream

from elasticd.gateway.continuation.engine import EngineFacts
from elasticd.gateway.continuation.terms import Kind, Terms, terms_of

ANSWER = "Sure: 日本語は楽しい。👩‍👩‍👧 done.\nEND of 2 émigrés, STOP here — naïve 🙂."
PROMPT = "Say something in 日本"
EOS = "<|end|>"


@functools.cache
def tokenizer() -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=[EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(["Sure done END of STOP here naive the and"], trainer)
    return made


def facts(**changes: Any) -> EngineFacts:
    known: dict[str, Any] = {
        "tokenizer": tokenizer(),
        "vocabulary": 300,
        "parser": False,
        "scale_out": True,
        "reasoning": False,
        "fingerprint": None,
        "max_model_len": 4096,
        "max_tokens": None,
        "most_tokens": None,
        "always_usage": False,
        "penalties": False,
    }
    return EngineFacts(**{**known, **changes})


PATHS = {Kind.CHAT: "/v1/chat/completions", Kind.COMPLETION: "/v1/completions"}


def terms(kind: Kind = Kind.CHAT, **fields: Any) -> Terms:
    limit = {"max_tokens": 1000} if "max_tokens" not in fields else {}
    found = terms_of(PATHS[kind], {"model": "m", "stream": True, **limit, **fields})
    assert isinstance(found, Terms), found
    return found


def prompt_ids() -> list[int]:
    return list(tokenizer().encode(PROMPT).ids)


def answer_ids() -> list[int]:
    return [*tokenizer().encode(ANSWER).ids, tokenizer().token_to_id(EOS)]


Step = tuple[list[int], str, str | None, str | None]
"""Ids, text, finish reason and stop reason of one event."""


def run(asked: Terms, ids: Sequence[int], after: Sequence[int] = ()) -> Iterator[Step]:
    """What an engine says that begins at `after` and will generate `ids`, one by one.

    Written after vLLM's detokenizer; `after` is prompt to it, so it knows no stop string there.
    """
    stream = DecodeStream(ids=[*prompt_ids(), *after], skip_special_tokens=True)
    held = 0 if asked.include_stop else max((len(s) for s in asked.stop), default=1) - 1
    text, shown = "", 0
    limit = 1000 if asked.max_tokens is None else asked.max_tokens
    for count, token_id in enumerate(ids, 1):
        reason = stopped_by = None
        ended = token_id == tokenizer().token_to_id(EOS)
        new = "" if ended else stream.step(tokenizer(), token_id) or ""
        text += new
        found = [
            (at + len(s), at, s)
            for s in asked.stop
            if new
            and count > asked.min_tokens
            and (at := text.find(s, max(0, len(text) - len(new) - len(s) + 1))) >= 0
        ]
        if found:
            end, at, stopped_by = min(found)
            text, reason = text[: end if asked.include_stop else at], "stop"
        elif ended:
            reason = "stop"
        elif count == limit:
            reason = "length"
        told = text[shown:] if reason else text[shown : max(shown, len(text) - held)]
        shown += len(told)
        yield [token_id], told, reason, stopped_by
        if reason:
            return


def events(kind: Kind, steps: Iterator[Step], usage: int | None = None) -> list[bytes]:
    """The events of a stream; `usage`: prompt tokens, where the sum is told at the end."""
    name = "chat.completion.chunk" if kind is Kind.CHAT else "text_completion"
    head = {"id": "x-1", "object": name, "created": 7, "model": "m"}
    out: list[dict[str, Any]] = []
    if kind is Kind.CHAT:
        role = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
        out.append({**head, "choices": [role], "prompt_token_ids": prompt_ids()})
    count = 0
    for ids, text, reason, stopped_by in steps:
        count += len(ids)
        choice: dict[str, Any] = {"index": 0}
        choice |= {"delta": {"content": text}} if kind is Kind.CHAT else {"text": text}
        choice |= {"logprobs": None, "finish_reason": reason, "stop_reason": stopped_by}
        if kind is Kind.COMPLETION:
            choice["prompt_token_ids"] = prompt_ids() if len(out) == 0 else None
        out.append({**head, "choices": [{**choice, "token_ids": ids}]})
    if usage is not None:
        sums = {"prompt_tokens": usage, "total_tokens": usage + count, "completion_tokens": count}
        out.append({**head, "choices": [], "usage": sums})
    packed = [json.dumps(d, ensure_ascii=False).encode() for d in out]
    return [b"data: " + p + b"\n\n" for p in (*packed, b"[DONE]")]
