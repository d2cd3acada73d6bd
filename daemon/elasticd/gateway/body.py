"""Reading a request's body: whole, within its limits, unpacked, and never waiting for ever."""

from __future__ import annotations

from elasticd.gateway.encoding import UNPACKABLE, BadPacking, coding_of, unpack
from elasticd.gateway.errors import (
    bad_request,
    body_too_slow,
    no_encoding,
    no_expectation,
    too_large,
)
from elasticd.gateway.http.request import Malformed, Request, TooLong, TooSlow


def plain_body(request: Request, limit: int) -> bytes | None:
    """The body of nearly every request, which is there with its head, and short, and not packed;
    `None`: it is to be read."""
    headers = request.headers
    if "Content-Encoding" in headers or "Expect" in headers:
        return None
    return request.body.at_once(limit)


async def read_body(request: Request, limit: int, patience: float) -> bytes:
    """The body, plain. Raises `ApiError` for one above `limit` bytes, packed or unpacked, and when
    it is sent too slowly, or nothing of it for `patience` seconds."""
    if request.length > limit:
        raise too_large(limit)
    coding = coding_of(request.headers.get("Content-Encoding"))
    if coding and coding not in UNPACKABLE:
        raise no_encoding(coding, UNPACKABLE)
    _invite(request)
    body = await _read(request, limit, patience)
    if not coding or not body:
        return body
    try:
        plain = unpack(body, limit)
    except BadPacking as bad:
        raise bad_request(f"The request body is not {coding}: {bad}") from bad
    if len(plain) > limit:
        raise too_large(limit)
    return plain


def _invite(request: Request) -> None:
    """Some clients send a large body only after they are told to."""
    expected = request.headers.get("Expect")
    if expected is None or not request.modern:
        return
    if expected.strip().lower() != "100-continue":
        raise no_expectation(expected)
    if not request.body.whole:
        request.answer.invite()


async def _read(request: Request, limit: int, patience: float) -> bytes:
    try:
        return await request.body.read(limit, patience)
    except TooLong as long:
        raise too_large(limit) from long
    except TooSlow as slow:
        raise body_too_slow(patience, slow.seconds, slow.came) from slow
    except Malformed as bad:
        raise bad_request("The request body is not framed as HTTP wants it") from bad
