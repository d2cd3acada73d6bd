"""Which requests may be continued: an allow-list of their fields, anything else is not.

A field is on it if what it does to the rest of an answer depends on the token ids so far alone, so
that another engine, given these ids as its prompt, goes on as the first would have. Pure.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple


class Kind(enum.StrEnum):
    """Whose events the client is sent."""

    CHAT = "chat"
    COMPLETION = "completion"


_KINDS = {"/v1/chat/completions": Kind.CHAT, "/v1/completions": Kind.COMPLETION}

MOST_STOPS = 64
"""Stop strings of one request: each is looked for at every token."""


class Terms(NamedTuple):
    """What a continued answer must keep to.

    `max_tokens`: `None` where the request names no limit. `sampling`: passed on as it is.
    `usage`: at the end; `running_usage`: with every event. `wants_ids`: the client asked for token
    ids itself.
    """

    kind: Kind
    stop: tuple[str, ...]
    include_stop: bool
    min_tokens: int
    max_tokens: int | None
    sampling: Mapping[str, Any]
    usage: bool
    running_usage: bool
    wants_ids: bool


@dataclass(frozen=True, slots=True)
class NotContinued:
    """Why a request is not, in a few words."""

    reason: str


def terms_of(path: str, fields: Mapping[str, Any]) -> Terms | NotContinued:
    """The terms of a streamed request with these body fields, or why there are none."""
    kind = _KINDS.get(path)
    if kind is None:
        return NotContinued(f"{path} is not continued")
    allowed = _ALLOWED[kind]
    for name, value in fields.items():
        if value is None:
            continue
        fits = allowed.get(name)
        if fits is None:
            return NotContinued(f"`{name}` is not continued")
        if not fits(value):
            return NotContinued(f"this `{name}` is not continued")
    options = fields.get("stream_options") or {}
    usage = options.get("include_usage") is True
    return Terms(
        kind=kind,
        stop=_strings(fields.get("stop")),
        include_stop=fields.get("include_stop_str_in_output") is True,
        min_tokens=fields.get("min_tokens") or 0,
        max_tokens=_limit(kind, fields),
        sampling={n: v for n, v in fields.items() if n in _SAMPLING and v is not None},
        usage=usage,
        running_usage=usage and options.get("continuous_usage_stats") is True,
        wants_ids=fields.get("return_token_ids") is True,
    )


def parsed_terms(terms: Terms) -> Terms | NotContinued:
    """The same where a parser is on the stream: it would be given what ends an answer, too."""
    shown_token = terms.include_stop and terms.sampling.get("stop_token_ids")
    for name, told in (("stop", terms.stop), ("include_stop_str_in_output", shown_token)):
        if told:
            return NotContinued(f"`{name}` is not continued where a parser is on the stream")
    return terms


def _limit(kind: Kind, fields: Mapping[str, Any]) -> int | None:
    limit: int | None = fields.get("max_tokens")
    if kind is Kind.CHAT:
        newer: int | None = fields.get("max_completion_tokens")
        return limit if newer is None else newer
    return _COMPLETION_LIMIT if limit is None else limit


_COMPLETION_LIMIT = 16
"""Tokens of a text completion that asks for no limit, as in OpenAI's API."""


def _strings(stop: object) -> tuple[str, ...]:
    if isinstance(stop, str):
        return (stop,)
    return tuple(stop) if isinstance(stop, list) else ()


def _anything(value: object) -> bool:
    return True


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _flag(value: object) -> bool:
    return isinstance(value, bool)


def _zero(value: object) -> bool:
    return _number(value) and value == 0


def _one(value: object) -> bool:
    return value == 1 and not isinstance(value, bool)


def _no(value: object) -> bool:
    return value is False or _zero(value)


def _stop(value: object) -> bool:
    if isinstance(value, str):
        return value != ""
    return (
        isinstance(value, list)
        and len(value) <= MOST_STOPS
        and all(isinstance(s, str) and s for s in value)
    )


def _ids(value: object) -> bool:
    return isinstance(value, list) and all(_count(i) for i in value)


def _options(value: object) -> bool:
    known = {"include_usage", "continuous_usage_stats"}
    return isinstance(value, dict) and set(value) <= known and all(map(_flag, value.values()))


def _messages(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(m, dict) and _text_only(m) for m in value)


def _text_only(message: Mapping[str, Any]) -> bool:
    content = message.get("content")
    if content is None or isinstance(content, str):
        return True
    return isinstance(content, list) and all(
        isinstance(part, dict) and part.get("type") == "text" for part in content
    )


def _prompt(value: object) -> bool:
    return isinstance(value, str) or (_ids(value) and value != [])


def _yes(value: object) -> bool:
    return value is True


def _plain_format(value: object) -> bool:
    return value == {"type": "text"}


def _free_choice(value: object) -> bool:
    return value in ("auto", "none")


Fits = Callable[[object], bool]

_SAMPLING: dict[str, Fits] = {
    "temperature": _number,
    "top_p": _number,
    "top_k": _number,
    "min_p": _number,
    "seed": _number,
    "repetition_penalty": _number,
    "logit_bias": _anything,
    "stop_token_ids": _ids,
    "ignore_eos": _flag,
    "priority": _number,
}
"""What the engine that goes on must be told, too."""

_COMMON: dict[str, Fits] = {
    **_SAMPLING,
    "model": _anything,
    "stream": _flag,
    "stream_options": _options,
    "max_tokens": _count,
    "min_tokens": _count,
    "n": _one,
    "stop": _stop,
    "include_stop_str_in_output": _flag,
    "presence_penalty": _zero,
    "frequency_penalty": _zero,
    "response_format": _plain_format,
    "return_token_ids": _flag,
    "logprobs": _no,
    "echo": _no,
    "user": _anything,
    "metadata": _anything,
}

_ALLOWED: dict[Kind, dict[str, Fits]] = {
    Kind.CHAT: {
        **_COMMON,
        "messages": _messages,
        "max_completion_tokens": _count,
        "top_logprobs": _zero,
        "tools": _anything,
        "tool_choice": _free_choice,
        "parallel_tool_calls": _flag,
        "chat_template_kwargs": _anything,
        "add_generation_prompt": _flag,
        "include_reasoning": _yes,
    },
    Kind.COMPLETION: {**_COMMON, "prompt": _prompt, "best_of": _one},
}
