"""Reading a request's body: whole, within its limits, unpacked, and never waiting for ever.

A client has `body_timeout` to send its body, and a second more for each `SLOWEST` bytes of it that
have come. No real link is slower; what is holds a connection and a key's place on purpose.
"""

from __future__ import annotations

import asyncio

from aiohttp import HttpVersion11, web

from elasticd.gateway.encoding import UNPACKABLE, BadPacking, coding_of, unpack
from elasticd.gateway.errors import (
    bad_request,
    body_too_slow,
    no_encoding,
    no_expectation,
    too_large,
)

SLOWEST = 1024
"""Bytes a second: the least that keeps a body coming once its `body_timeout` has passed."""


async def read_body(request: web.BaseRequest, limit: int, patience: float) -> bytes:
    """The body, plain. Raises `ApiError` for one above `limit` bytes, packed or unpacked, and when
    it is sent too slowly, or nothing of it for `patience` seconds."""
    if (request.content_length or 0) > limit:
        raise too_large(limit)
    coding = coding_of(request.headers.get("Content-Encoding"))
    if coding and coding not in UNPACKABLE:
        raise no_encoding(coding, UNPACKABLE)
    await _invite(request)
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


async def _invite(request: web.BaseRequest) -> None:
    """Some clients send a large body only after they are told to."""
    expected = request.headers.get("Expect")
    if expected is None or request.version < HttpVersion11:
        return
    if expected.strip().lower() != "100-continue":
        raise no_expectation(expected)
    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    request.writer.output_size = 0  # nothing of the answer has been sent by this


async def _read(request: web.BaseRequest, limit: int, patience: float) -> bytes:
    content = request.content
    body = bytearray()
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        while not content.is_eof():  # else all that is left has come and nothing is waited for
            latest = began + patience + len(body) / SLOWEST
            async with asyncio.timeout_at(min(latest, loop.time() + patience)):
                body += await content.readany()
            if len(body) > limit:
                raise too_large(limit)
        body += content.read_nowait()
    except TimeoutError as late:
        raise body_too_slow(patience, loop.time() - began, len(body)) from late
    except web.RequestPayloadError as bad:
        raise bad_request("The request body is not framed as HTTP wants it") from bad
    if len(body) > limit:
        raise too_large(limit)
    return bytes(body)
