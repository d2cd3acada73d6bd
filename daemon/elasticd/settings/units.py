"""Addresses as people write them. Durations, sizes and money are read by `elasticd.units`."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema


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
        if self.host.lower() == "localhost":
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
        if colon and _is_host(host) and (bracketed or ":" not in host):
            return Address(host, _port(port))
    given = f"not an address: {str(value)[:60]!r}"
    told = "has no value, where an address belongs" if value is None else given
    raise ValueError(f"{told}; allowed: HOST:PORT, for example 127.0.0.1:8000 or [::1]:8000")


def _is_host(text: str) -> bool:
    return bool(text) and not any(c.isspace() or c in "/@#?[]" for c in text)


def _port(text: str) -> int:
    plain = text.isascii() and text.isdigit() and not text.startswith("0")
    if not plain or len(text) > 5 or int(text) > 65535:
        raise ValueError(f"no such port: {text[:10]!r}; allowed: 1 to 65535, in plain digits")
    return int(text)


HostPort = Annotated[
    Address,
    BeforeValidator(parse_address),
    PlainSerializer(str),
    WithJsonSchema({"type": "string", "pattern": r"^.+:[1-9][0-9]{0,4}$"}),
]
