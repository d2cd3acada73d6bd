"""What is wrong with what a client sent, before there is a request to speak of.

Only the kind of a fault is told, never the bytes: they can hold a key.
"""

from __future__ import annotations

import httptools
from multidict import CIMultiDict

from elasticd.gateway.errors import ApiError, no_http

_SPOKEN = ("1.1", "1.0")


def what_is_wrong(bad: httptools.HttpParserError) -> ApiError:
    """The parser's complaint, in the shape of every error."""
    if isinstance(bad, httptools.HttpParserInvalidMethodError):
        return no_http("it does not begin with a method; is it https, or another protocol?")
    if isinstance(bad, httptools.HttpParserInvalidURLError):
        return no_http("its target cannot be read")
    words = str(bad)
    if words.startswith("Pause on"):
        return no_http("HTTP/2 is not spoken here, use HTTP/1.1")
    return no_http(words[:100] or "it cannot be read")


def not_taken(version: str, headers: CIMultiDict[str]) -> ApiError | None:
    """Why a head that can be read is refused all the same; `None` if it is not."""
    if version not in _SPOKEN:
        return no_http("its HTTP version is not spoken here, use HTTP/1.1")
    hosts = len(headers.getall("Host", ()))
    if hosts > 1 or (not hosts and version == "1.1"):
        return no_http("it names no `Host`, or more than one")
    if "Transfer-Encoding" in headers:
        codings = ",".join(headers.getall("Transfer-Encoding"))
        if codings.strip().lower() != "chunked":
            return no_http("of transfer codings only a single `chunked` is supported")
    return None
