"""A model that has learnt chats with reasoning and tool calls by heart, and what to ask it.

It is the one of `source: demo:tiny`: two layers, made on the spot in about a minute, used again
afterwards. Its answers have `<think>…</think>` and `<tool_call>{…}</tool_call>` in many scripts.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elasticd.demo import tiny_model
from elasticd.demo.texts import THINKING, TOOLS
from elasticd.settings.paths import demo_model_dir

PARSER_ARGS = {
    "reasoning-parser": "qwen3",
    "enable-auto-tool-choice": "true",
    "tool-call-parser": "hermes",
}
"""Options of an engine that parses its answers."""

_NAMES = ("get_weather", "write_note", "get_time", "search_books")
_ANY = {"type": "object", "properties": {}}
TOOL_FIELDS: dict[str, Any] = {
    "tools": [
        {"type": "function", "function": {"name": name, "parameters": _ANY}} for name in _NAMES
    ]
}


@dataclass(frozen=True, slots=True)
class MemorisedChat:
    """`fields` of a request, without limits; the model's `answer` as it comes, tags and all."""

    name: str
    fields: dict[str, Any]
    answer: str


def memorised_chats() -> list[MemorisedChat]:
    """What it knows that a parser makes something of."""
    thoughts = [(f"thought {n}", text, {}) for n, text in enumerate(THINKING)]
    calls = [(f"call {n}", text, TOOL_FIELDS) for n, text in enumerate(TOOLS)]
    return [
        MemorisedChat(
            name, {"messages": [{"role": "user", "content": text.prompt}], **fields}, text.answer
        )
        for name, text, fields in (*thoughts, *calls)
    ]


def build_memorised_model(path: Path | None = None) -> list[MemorisedChat]:
    """Puts the model into `path`, or where `source: demo:tiny` has it; copied if it is made
    already."""
    usual = demo_model_dir()
    if path is None or path == usual:
        tiny_model.make(usual)
    elif not tiny_model.finished(path) and tiny_model.finished(usual):
        shutil.copytree(usual, path, dirs_exist_ok=True)
    else:
        tiny_model.make(path)
    return memorised_chats()
