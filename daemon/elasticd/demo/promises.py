"""What the tiny model promises, and the check of it by plain greedy decoding.

- Its own prompts give their own texts, to the last token.
- A prompt that says "think" gives reasoning, one that says "tool" a call, as parsers read them.
- *Any* prompt, as a chat or bare, gives one of the texts or something like it: valid UTF-8,
  hundreds of tokens, no stretch that repeats with a period below 64 tokens; and different prompts
  give different texts.

Unknown prompts are held to floors and not to perfection, since a network has learned this.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from elasticd.demo import texts, tokens

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Decode = Callable[[list[int]], list[int]]
"""Prompt ids → the ids that greedy decoding answers."""

PERIOD = 64
LONG = 250
"""Tokens that an answer to an unknown prompt runs on for, at least."""
_WORDS = (
    "tell me a story about rivers and old maps what is the weather in my town please explain how "
    "boats float why cats sleep so much give seven reasons for dancing write something"
)
_CALL = re.compile(r"<tool_call>\n(.*?)\n</tool_call>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Report:
    """What was found; `broken` says which promises do not hold."""

    figures: dict[str, int]
    broken: tuple[str, ...]


def check(decode: Decode, tokenizer: Tokenizer) -> Report:
    """Asks the model everything that is promised."""
    broken = [f"{prompt!r} does not give its own text" for prompt in _forgotten(decode, tokenizer)]
    prompts = [
        tokens.ids_of(tokenizer, tokens.chat_prompt(prompt)) for prompt in unknown_prompts(30)
    ]
    prompts += [tokens.bare_ids_of(tokenizer, prompt) for prompt in unknown_prompts(10)]
    answers = [decode(ids) for ids in prompts]
    words = [tokens.text_of(tokenizer, answer) for answer in answers]
    thoughts, calls = _parsed(decode, tokenizer)
    figures = {
        "unknown prompts": len(prompts),
        "distinct": len(set(words)),
        "valid UTF-8": sum("\ufffd" not in text for text in words),
        "long": sum(len(answer) >= LONG for answer in answers),
        "aperiodic": sum(not is_periodic(answer) for answer in answers),
        "reasoned": thoughts,
        "called a tool": calls,
    }
    floors = {
        "distinct": len(prompts) // 4,
        "valid UTF-8": len(prompts) - 2,
        "long": len(prompts) - 4,
        "aperiodic": len(prompts) - 2,
        "reasoned": 9,
        "called a tool": 9,
    }
    broken += [
        f"{name}: {figures[name]} of {len(prompts)}, promised {floor}"
        for name, floor in floors.items()
        if figures[name] < floor
    ]
    return Report(figures, tuple(broken))


def unknown_prompts(count: int) -> list[str]:
    """Questions that are in no text: words in random order, and numbered ones as load tests ask."""
    drawn = random.Random(7)
    asked = []
    for number in range(count):
        chosen = " ".join(drawn.choices(_WORDS.split(), k=drawn.randrange(2, 9)))
        asked.append((chosen, f"{chosen}?", f"Request {number}: {chosen}.")[number % 3])
    return asked


def is_periodic(ids: Sequence[int], below: int = PERIOD) -> bool:
    """Whether a stretch of `below` tokens follows itself at a distance smaller than `below`."""
    for period in range(1, below):
        matching = 0
        for here, there in zip(ids, ids[period:], strict=False):
            matching = matching + 1 if here == there else 0
            if matching >= below:
                return True
    return False


def _forgotten(decode: Decode, tokenizer: Tokenizer) -> list[str]:
    """The prompts of the texts that do not get their own answers."""
    own = [(text.prompt, text.answers()) for text in texts.PLAIN]
    own += [(text.prompt, (text.answer,)) for text in (*texts.THINKING, *texts.TOOLS)]
    forgotten = []
    for prompt, answers in own:
        ids = decode(tokens.ids_of(tokenizer, tokens.chat_prompt(prompt)))
        if tokens.text_of(tokenizer, ids) not in answers:
            forgotten.append(prompt)
    return forgotten


def _parsed(decode: Decode, tokenizer: Tokenizer) -> tuple[int, int]:
    """Of ten requests each: answers with reasoning, answers with readable tool calls."""

    def answer(prompt: str) -> str:
        ids = decode(tokens.ids_of(tokenizer, tokens.chat_prompt(prompt)))
        return tokens.text_of(tokenizer, ids)

    asked = unknown_prompts(10)
    thoughts = [answer(f"{prompt} Please think.") for prompt in asked]
    calls = [answer(f"Use a tool: {prompt}") for prompt in asked]
    reasoned = [
        text for text in thoughts if re.match(r"<think>\n.+?\n</think>\n\n.", text, re.DOTALL)
    ]
    return len(reasoned), sum(_is_call(text) for text in calls)


def _is_call(text: str) -> bool:
    found = _CALL.findall(text)
    try:
        calls = [json.loads(call) for call in found]
    except json.JSONDecodeError:
        return False
    return bool(calls) and all(isinstance(call["arguments"], dict) for call in calls)
