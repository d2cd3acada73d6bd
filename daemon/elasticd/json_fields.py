"""A JSON object of another program, read field by field.

Whatever it holds, what is wrong with it is one `ValueError` that names the place, and never another
exception. Fields nobody asks for are passed over: who wrote it may be a newer program.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

T = TypeVar("T")
E = TypeVar("E", bound=enum.StrEnum)

MOST = 1e15
"""No count, and no time in seconds, is greater. Every smaller one is exact as a float."""

_NEEDED: Any = object()


class Fields:
    """The fields of `value`. `path`: where it stands, for messages; empty: it is the whole."""

    def __init__(self, value: object, path: str = "") -> None:
        if not isinstance(value, Mapping):
            wrong = f"{path or 'the whole'}: an object is wanted, not {_shown(value)}"
            raise ValueError(wrong)  # noqa: TRY004 - it is data, not a caller
        self._value = value
        self._path = path

    def each(self, name: str) -> Iterator[Fields]:
        """The objects of a list."""
        told = self._told(name)
        if not isinstance(told, list):
            raise self._wrong(name, "a list")
        path = self._path_of(name)
        return (Fields(value, f"{path}[{at}]") for at, value in enumerate(told))

    def text(self, name: str, default: str = _NEEDED) -> str:
        """Any text."""
        told = self._told(name, default)
        if not isinstance(told, str):
            raise self._wrong(name, "text")
        return told

    def word(self, name: str) -> str:
        """Text that may stand in a header, where the end of a line would be another message. It
        may be secret, and is not shown."""
        told = self.text(name)
        if not told.isprintable():
            raise ValueError(f"{self._path_of(name)}: it holds what is no letter, digit or sign")
        return told

    def url(self, name: str) -> str:
        """An `http` or `https` address; without a port it is the usual one."""
        told = self.word(name)
        try:
            parts = urlsplit(told)
            (parts.hostname or "").encode("idna")
            complete = parts.scheme in ("http", "https") and bool(parts.hostname)
            complete = complete and parts.port != 0
        except ValueError:
            complete = False
        if not complete:
            raise self._wrong(name, "http://HOST or http://HOST:PORT")
        return told

    def one_of(self, name: str, kind: type[E]) -> E:
        """A member by its value."""
        told = self.text(name)
        try:
            return kind(told)
        except ValueError:
            raise self._wrong(name, " or ".join(kind)) from None

    def flag(self, name: str, default: bool = _NEEDED) -> bool:
        """True or false."""
        told = self._told(name, default)
        if not isinstance(told, bool):
            raise self._wrong(name, "true or false")
        return told

    def whole(self, name: str, least: int = 0) -> int:
        """A whole number."""
        told = self._told(name)
        if not isinstance(told, int) or isinstance(told, bool) or not least <= told <= MOST:
            raise self._wrong(name, f"a whole number of at least {least}")
        return told

    def maybe(self, name: str, read: Callable[[str], T]) -> T | None:
        """What `read` makes of the field; `None` where it is null or missing."""
        return None if self._value.get(name) is None else read(name)

    def size(self, name: str, default: float = _NEEDED, *, zero: bool = False) -> float:
        """A finite number that is not negative, nor zero unless that is allowed."""
        told = self._number(name, default)
        if told is None or told < 0 or (told == 0 and not zero):
            raise self._wrong(name, "a number of at least 0" if zero else "a number above 0")
        return told

    def seconds(self, name: str) -> float:
        """A finite number of seconds on some clock."""
        told = self._number(name)
        if told is None:
            raise self._wrong(name, "a number of seconds")
        return told

    def _number(self, name: str, default: float = _NEEDED) -> float | None:
        told = self._told(name, default)
        if not isinstance(told, int | float) or isinstance(told, bool):
            return None
        # Infinite and "not a number" are neither; an integer may be too long for a float.
        return float(told) if -MOST <= told <= MOST and not math.isnan(told) else None

    def _told(self, name: str, default: Any = _NEEDED) -> Any:
        told = self._value.get(name, default)
        if told is _NEEDED:
            raise ValueError(f"{self._path_of(name)} is missing")
        return told

    def _path_of(self, name: str) -> str:
        return f"{self._path}.{name}" if self._path else name

    def _wrong(self, name: str, wanted: str) -> ValueError:
        told = _shown(self._value.get(name))
        return ValueError(f"{self._path_of(name)}: {wanted} is wanted, not {told}")


def _shown(value: object) -> str:
    """In a few words: what holds other values could be endless."""
    if isinstance(value, str):
        return ascii(value[:60])
    if value is None or isinstance(value, bool | float):
        return str(value)
    if isinstance(value, int):
        return str(value) if -MOST <= value <= MOST else "so long a number"
    return f"a {type(value).__name__}"
