"""What is asked where streams are cut: one request for each thing that may be continued."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from elasticd.demo.texts import PLAIN
from tests.e2e.memorised_model import TOOL_FIELDS, build_memorised_model

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
_USAGE = {"stream_options": {"include_usage": True}}
_RUNNING = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}


@dataclass(frozen=True)
class Question:
    """One request, by what is special about it."""

    name: str
    fields: dict[str, Any]
    path: str = CHAT
    made: Callable[[list[int]], dict[str, Any]] | None = None
    """Fields made of the ids of the answer without them, so that they matter."""


def _stopped(ids: list[int]) -> dict[str, Any]:
    """By the token that first comes latest before the end."""
    late = max((ids.index(i), i) for i in set(ids[:-1]))
    return {"stop_token_ids": [late[1]]}


def _biased(ids: list[int]) -> dict[str, Any]:
    """Against a token from the middle on, wherever it stands."""
    return {"logit_bias": {str(ids[len(ids) // 2]): -100}}


def parsed_questions() -> list[Question]:
    """For an engine with a parser."""
    chats = {chat.name: chat.fields for chat in build_memorised_model()}
    plain = {"messages": [{"role": "user", "content": PLAIN[0].prompt}], "max_tokens": 300}
    usual = {"max_tokens": 700, **_USAGE}
    note, thought = chats["call 1"], chats["thought 0"]
    return [
        *(Question(name, {**fields, **usual}) for name, fields in chats.items()),
        Question("no thoughts", {**plain, **TOOL_FIELDS}),
        Question("limit in a call", {**note, **_USAGE, "max_tokens": 120}),
        Question("limit in a thought", {**thought, **_RUNNING, "max_completion_tokens": 60}),
        Question("ids", {**chats["call 3"], "max_tokens": 700, "return_token_ids": True}),
        Question("no limit", {**note, **_USAGE}),
        Question("tool_choice none", {**note, **usual, "tool_choice": "none"}),
        Question(
            "no thinking",
            {**thought, **usual, "chat_template_kwargs": {"enable_thinking": False}},
        ),
        Question("priority", {**note, **usual, "priority": 5}),
        Question("stop_token_ids", {**note, **usual}, made=_stopped),
        Question("stop_token_ids in a thought", {**thought, **usual}, made=_stopped),
        Question("logit_bias", {**thought, **usual}, made=_biased),
        Question("ignore_eos", {**thought, "max_tokens": 330, "ignore_eos": True}),
        Question("ignore_eos after a call", {**chats["call 0"], **usual, "ignore_eos": True}),
        Question("min_tokens", {**thought, "max_tokens": 300, "min_tokens": 290}),
    ]


def plain_questions() -> list[Question]:
    """For an engine without."""
    chat = {"messages": [{"role": "user", "content": PLAIN[1].prompt}], "max_tokens": 250}
    text = {"prompt": PLAIN[0].body[:20], "max_tokens": 200}
    special: dict[str, dict[str, Any]] = {
        "nothing": {},
        "tool_choice none": {**TOOL_FIELDS, "tool_choice": "none"},
        "chat_template_kwargs": {"chat_template_kwargs": {"enable_thinking": False}},
        "priority": {"priority": 5},
        "stop_token_ids": {},
        "logit_bias": {},
        "min_p": {"min_p": 0.1, "top_p": 0.9, "top_k": 5, "temperature": 0},
        "user": {"user": "u", "metadata": {"a": "b"}},
        "ids": {"return_token_ids": True},
    }
    made = {"stop_token_ids": _stopped, "logit_bias": _biased}
    chats = [
        Question(name, {**chat, **_USAGE, **more}, made=made.get(name))
        for name, more in special.items()
    ]
    common = [n for n in special if n not in ("tool_choice none", "chat_template_kwargs")]
    texts = [
        Question(f"{n}, text", {**text, **_USAGE, **special[n]}, TEXT, made.get(n)) for n in common
    ]
    return chats + texts
