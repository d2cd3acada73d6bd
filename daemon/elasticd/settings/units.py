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
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


def parse_duration(value: Any) -> float:
    """Seconds of `"90s"`, `"5m"`, `"1h30m"`. Raises `ValueError` on anything else."""
    if isinstance(value, str):
        text = value.replace(" ", "")
        parts = _PART.findall(text)
        if parts and "".join(number + unit for number, unit in parts) == text:
            return sum(float(number) * _UNIT_SECONDS[unit] for number, unit in parts)
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


def parse_address(value: Any) -> Address:
    """`"127.0.0.1:8000"`, `"[::1]:8000"`, `"gpu1.lab:8000"`. Raises `ValueError` otherwise."""
    if isinstance(value, Address):
        return value
    if isinstance(value, str):
        host, colon, port = value.rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        host = host[1:-1] if bracketed else host
        if colon and host and (bracketed or ":" not in host) and port.isascii() and port.isdigit():
            if not 1 <= int(port) <= 65535:
                raise ValueError(f"no such port: {port}; ports are 1 to 65535")
            return Address(host, int(port))
    raise ValueError(f'not an address: {value!r}; write "HOST:PORT", for example "127.0.0.1:8000"')


HostPort = Annotated[Address, BeforeValidator(parse_address), PlainSerializer(str)]
