"""Values with units, as people write them: durations and addresses.

A bare number is refused wherever a unit belongs: `idle_timeout: 120` is two minutes to one reader
and two milliseconds to the next.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer

_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_WHOLE = re.compile(rf"(?:{_PART.pattern})+")
_SHORTEST = 0.001
_LONGEST = 3650 * 86400.0


def parse_duration(value: Any) -> float:
    """Seconds of `"90s"`, `"5m"`, `"1h30m"`: nothing, or one millisecond to ten years.

    Raises `ValueError` on anything else.
    """
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        parts = _PART.findall(value)
        seconds = sum(float(number) * _UNIT_SECONDS[unit] for number, unit in parts)
        nothing = not re.search("[1-9]", value)  # asked of the text: tiny numbers round to zero
        if nothing or _SHORTEST <= seconds <= _LONGEST:
            return seconds
        raise ValueError(f"not a useful duration: {value[:40]!r}; allowed: 0s, or 1ms to 3650d")
    bare = isinstance(value, int | float) and not isinstance(value, bool)
    if bare:
        raise ValueError(f'a duration needs a unit: write "{value}s" or "{value}m", not {value}')
    raise ValueError(f'not a duration: {value!r}; write for example "90s", "5m" or "2h"')


def format_duration(seconds: float) -> str:
    """The shortest way `parse_duration` reads back: `90.0` → `"1m30s"`."""
    if seconds < 1:
        return f"{round(seconds * 1000)}ms"
    left, parts = round(seconds), []
    for unit in ("d", "h", "m", "s"):
        count, left = divmod(left, int(_UNIT_SECONDS[unit]))
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


def _positive(value: Any) -> float:
    seconds = parse_duration(value)
    if seconds <= 0:
        raise ValueError("must be longer than nothing")
    return seconds


Duration = Annotated[float, BeforeValidator(parse_duration), PlainSerializer(format_duration)]
"""Seconds; zero is fine."""

Timeout = Annotated[float, BeforeValidator(_positive), PlainSerializer(format_duration)]
"""Seconds; more than zero."""


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a TCP port. IPv6 hosts are kept without brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """How a client on this machine reaches it: "every interface" is asked by loopback."""
        if self.host == "0.0.0.0":
            return f"http://127.0.0.1:{self.port}"
        if self.host == "::":
            return f"http://[::1]:{self.port}"
        return f"http://{self}"

    @property
    def is_loopback(self) -> bool:
        """Whether only processes of this machine reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def collides(self, other: Address) -> bool:
        """Whether both cannot be listened on at once, as far as the text tells."""
        if self.port != other.port:
            return False
        ours, theirs = _interfaces(self.host), _interfaces(other.host)
        return bool(ours & theirs) or bool(_EVERY_INTERFACE & (ours | theirs))


_EVERY_INTERFACE = frozenset({"0.0.0.0", "::"})


def _interfaces(host: str) -> frozenset[str]:
    """The addresses a host name stands for; each has one spelling. Asks no name service."""
    if host.lower() == "localhost":
        return frozenset({"127.0.0.1", "::1"})
    try:
        return frozenset({str(ipaddress.ip_address(host))})
    except ValueError:
        return frozenset({host.lower()})


def parse_address(value: Any) -> Address:
    """`"127.0.0.1:8000"`, `"[::1]:8000"`, `"gpu1.lab:8000"`. Raises `ValueError` otherwise."""
    if isinstance(value, Address):
        return value
    if isinstance(value, str):
        host, colon, port = value.rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        host = host[1:-1] if bracketed else host
        if colon and host and (bracketed or ":" not in host) and port.isascii() and port.isdigit():
            if len(port) > 5 or not 1 <= int(port) <= 65535:
                raise ValueError(f"no such port: {port[:10]}; ports are 1 to 65535")
            return Address(host, int(port))
    raise ValueError(f'not an address: {value!r}; write "HOST:PORT", for example "127.0.0.1:8000"')


HostPort = Annotated[Address, BeforeValidator(parse_address), PlainSerializer(str)]
