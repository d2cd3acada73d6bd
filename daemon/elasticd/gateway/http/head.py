"""Heads of requests and answers: read from pairs of bytes, cleaned, and written.

What speaks of one connection only (RFC 9110, 7.6.1) ends at the gateway, in both directions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import urlsplit

from multidict import CIMultiDict, MultiMapping

Pairs = Sequence[tuple[bytes, bytes]]

HOP_BY_HOP = frozenset(
    (
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "content-length",
    )
)
_HOP_BY_HOP_BYTES = frozenset(name.encode() for name in HOP_BY_HOP)

_WITH_BODY = frozenset(("POST", "PUT", "PATCH"))
"""Methods whose requests tell their length, also where it is zero."""


@dataclass(frozen=True, slots=True, eq=False)
class Address:
    """Where a replica listens. `prefix`: of its paths. `name`: as `Host` has it. One object for
    each URL: it is looked up by what it is, not by what it holds."""

    host: str
    port: int
    tls: bool
    prefix: str
    name: str


@lru_cache(maxsize=4096)
def address_of(url: str) -> Address:
    """The address an endpoint's URL stands for."""
    parts = urlsplit(url)
    tls = parts.scheme == "https"
    name = parts.netloc.rpartition("@")[2]
    port = parts.port or (443 if tls else 80)
    return Address(parts.hostname or "", port, tls, parts.path.rstrip("/"), name)


def headers_of(pairs: Pairs) -> CIMultiDict[str]:
    """The headers as text. Bytes that are no text survive the way through the gateway."""
    return CIMultiDict(
        [(str(n, "latin-1"), str(v.strip(b" \t"), "utf-8", "surrogateescape")) for n, v in pairs]
    )


def answer_headers(pairs: Pairs) -> tuple[CIMultiDict[str], bool]:
    """The headers of a replica's answer as its client may have them, and whether they tell where
    its body ends."""
    kept, framed, named = [], False, ""
    for name, value in pairs:
        low = name.lower()
        if low in _HOP_BY_HOP_BYTES:
            if low == b"content-length" or (low == b"transfer-encoding" and b"chunked" in value):
                framed = True
            elif low == b"connection":
                named += f",{value.decode('latin-1')}"
        else:
            kept.append((name, value))
    headers = headers_of(kept)
    if named:
        for ended in filter(None, map(str.strip, named.split(","))):
            headers.popall(ended, None)
    return headers, framed


def without(headers: MultiMapping[str], dropped: frozenset[str]) -> list[tuple[str, str]]:
    """The lines, without those `dropped` (in lower case), `HOP_BY_HOP` among them, and without what
    else speaks of one connection only."""
    if "Connection" in headers:
        lines = headers.getall("Connection")
        dropped |= {name.strip().lower() for line in lines for name in line.split(",")}
    return [line for line in headers.items() if line[0].lower() not in dropped]


def request_bytes(
    method: str, address: Address, target: str, headers: Iterable[tuple[str, str]], body: bytes
) -> bytes:
    """A whole request to a replica."""
    lines = [f"{method} {address.prefix}{target} HTTP/1.1", f"Host: {address.name}"]
    lines += [f"{name}: {value}" for name, value in headers]
    if body or method in _WITH_BODY:
        lines.append(f"Content-Length: {len(body)}")
    return head_bytes(lines) + body


def head_bytes(lines: Sequence[str]) -> bytes:
    """The lines as they go over the wire.

    Raises `ValueError` if one of them holds a line's end: that would be another message.
    """
    head = "\r\n".join(lines)
    if head.count("\n") != len(lines) - 1 or head.count("\r") != len(lines) - 1:
        raise ValueError("a header holds the end of a line")
    return f"{head}\r\n\r\n".encode("utf-8", "surrogateescape")


def target_of(raw: bytes) -> tuple[str, str]:
    """Path and query of a request's target as they were written, and the path alone.

    Raises `ValueError` for a URL that is none.
    """
    text = raw.decode("utf-8", "surrogateescape").partition("#")[0]
    if "://" in text and not text.startswith("/"):
        parts = urlsplit(text)
        text = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return text, text.partition("?")[0]
