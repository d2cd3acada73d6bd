"""What is asked in a storm: long answers in many scripts, of every kind that goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from elasticd.demo.texts import PLAIN, THINKING, TOOLS, Plain

CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"
_USAGE = {"stream_options": {"include_usage": True}}
_WIDE = 0x2E80
"""From here on a character is several tokens of the model, so that a cut falls inside one."""


@dataclass(frozen=True)
class Question:
    """One request; `fields` are those of its body.

    `stop`: it ends at a stop string. `parsed`: a parser is on its stream. `quick`: it is short and
    not streamed, so that a loss finds it before its first byte.
    """

    name: str
    path: str
    fields: dict[str, Any]
    stop: bool = False
    parsed: bool = False
    quick: bool = False

    @property
    def prompt(self) -> str:
        """Its last words: what must never stand in an answer."""
        fields = self.fields
        return str(fields["prompt"] if "prompt" in fields else fields["messages"][-1]["content"])


def plain_questions(texts: Sequence[Plain]) -> list[Question]:
    """For engines without a parser."""
    found: list[Question] = []
    for number, text in enumerate(texts):
        asked = {**_chat(text.prompt), **_USAGE}
        late = text.body[int(len(text.body) * 0.8) :][:9]
        forms: list[tuple[str, str, dict[str, Any]]] = [
            ("chat", CHAT, {**asked, "max_tokens": 700}),
            ("stop", CHAT, {**asked, "max_tokens": 700, "stop": ["no such words", late]}),
            ("limit", CHAT, {**asked, "max_completion_tokens": 250 + 10 * number}),
            ("text", COMPLETION, {"prompt": text.body[:20], "max_tokens": 300, **_USAGE}),
            (
                "shown stop",
                CHAT,
                {**asked, "max_tokens": 700, "stop": late, "include_stop_str_in_output": True},
            ),
        ]
        found += [Question(f"{name} {number}", p, f, "stop" in name) for name, p, f in forms]
    return found


def parsed_questions() -> list[Question]:
    """For engines that take thoughts and tool calls out of their answers."""
    names = ("get_weather", "write_note", "get_time", "search_books")
    anything = {"type": "object", "properties": {}}
    tools = [
        {"type": "function", "function": {"name": name, "parameters": anything}} for name in names
    ]
    usual = {**_USAGE, "max_tokens": 700}
    thoughts = [
        Question(f"thought {n}", CHAT, {**_chat(text.prompt), **usual}, parsed=True)
        for n, text in enumerate(THINKING)
    ]
    calls = [
        Question(f"call {n}", CHAT, {**_chat(text.prompt), **usual, "tools": tools}, parsed=True)
        for n, text in enumerate(TOOLS)
    ]
    plain = [
        Question(f"plain {n}", CHAT, {**_chat(text.prompt), **usual}, parsed=True)
        for n, text in enumerate(PLAIN[:3])
    ]
    note = calls[1]  # the longest call: most cuts fall into it
    return [*thoughts, *calls, *plain, note, note]


def quick_questions(texts: Sequence[Plain]) -> list[Question]:
    """Those of a burst."""
    return [
        Question(f"quick {n}", CHAT, {**_chat(text.prompt), "max_tokens": 60}, quick=True)
        for n, text in enumerate(texts)
    ]


def wide_texts(count: int) -> list[Plain]:
    """The texts of which most cuts fall inside a character."""
    return sorted(PLAIN, key=_narrow_share)[:count]


def _narrow_share(text: Plain) -> float:
    return sum(ord(c) < _WIDE for c in text.body) / len(text.body)


def _chat(prompt: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": prompt}]}
