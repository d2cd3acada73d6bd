"""Takes out of a journal what looks like a secret, before people hand it on.

No secret should be in it: the configuration's are named by their place, and the core is told none.
What this is for are values that people or engines put where they do not belong: a key in a
command's arguments, a password in an address, a token that an engine printed before it died. The
core never looks into any of these, so the journal is decided as before.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from elasticd.settings.engine_env import HIDDEN, looks_secret

_IN_TEXT = re.compile(
    r"(?P<address>\b[a-z][a-z0-9+.-]*://)[^/\s@\"']+@"
    r"|(?P<header>\b(?:bearer|basic)\s+)[\w.~+/=-]{8,}"
    r"|(?P<named>\b[\w-]*(?:api[_-]?key|token|secret|password|passwd)[\"']?\s*[=:]\s*[\"']?)"
    r"[\w.~+/=-]{8,}"
    r"|\b(?:hf_|sk-|ghp_|glpat-|xox[abp]-|AKIA|LTAI)[\w-]{12,}"
    r"|\beyJ[\w-]{10,}\.[\w-]+\.[\w-]*",
    re.IGNORECASE,
)
"""Passwords in addresses, headers, NAME=VALUE, tokens known by their beginning, and JWTs."""


class Scrubber:
    """Counts in `hidden` what it has taken out."""

    def __init__(self) -> None:
        self.hidden = 0

    def clean(self, value: Any) -> Any:
        """Any JSON, without what looks like a secret."""
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, list | tuple):
            return [self.clean(item) for item in value]
        if isinstance(value, dict):
            if {"kind", "argv", "args", "env"} <= value.keys():
                value = self._engine(value)
            return {key: self.clean(item) for key, item in value.items()}
        return value

    def _engine(self, engine: dict[str, Any]) -> dict[str, Any]:
        """An engine's options and variables have names, and a command's arguments mostly do.

        Lists may begin with a tag, as in `core_memory`.
        """
        named = {field: [self._pair(pair) for pair in engine[field]] for field in ("args", "env")}
        return {**engine, **named, "argv": self._arguments(engine["argv"])}

    def _pair(self, pair: Any) -> Any:
        if not isinstance(pair, list) or len(pair) < 2 or not isinstance(pair[-1], str):
            return pair
        return [*pair[:-1], self._value(str(pair[-2]), pair[-1])]

    def _arguments(self, argv: Sequence[Any]) -> list[Any]:
        kept: list[Any] = []
        before = ""
        for word in map(str, argv):
            name, equals, value = word.partition("=")
            shown = word
            if equals:
                shown = f"{name}={self._value(name, value)}"
            elif before.startswith("-") and not word.startswith("-"):
                shown = self._value(before, word)
            kept.append(shown)
            before = word
        return kept

    def _value(self, name: str, value: str) -> str:
        bare = name.lstrip("-").replace("-", "_")
        if not value or value == HIDDEN or not looks_secret(bare):
            return value
        self.hidden += 1
        return HIDDEN

    def _text(self, text: str) -> str:
        cleaned, count = _IN_TEXT.subn(_without, text)
        self.hidden += count
        return cleaned


def _without(found: re.Match[str]) -> str:
    kept = next((part for part in found.groups() if part), "")
    return f"{kept}{HIDDEN}@" if found["address"] else f"{kept}{HIDDEN}"
