"""The engine's door: an ASGI middleware that wants the replica's key. Standard library only.

vLLM loads it by `--middleware elasticd.node.engine_guard.KeyGuard`. Its own API key leaves some
paths open; here everything but `/health` and `/metrics` is shut. Who has the key is also told what
it takes to go on with this engine's answers elsewhere (`engine_facts`).
"""

from __future__ import annotations

import asyncio
import hmac
import os
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from elasticd.node.engine_facts import FACTS_PATH, TOKENIZER_PATH, read_facts, read_tokenizer
from elasticd.node.engine_reasoning import REASONING_PATH, count_reasoning

KEY_VARIABLE = "ELASTICD_ENGINE_KEY"
OPEN_PATHS = frozenset({"/health", "/metrics"})

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_BODY = b'{"error":{"message":"wrong or missing key","type":"invalid_request_error","code":401}}'


class KeyGuard:
    """Lets through who shows `Authorization: Bearer $ELASTICD_ENGINE_KEY`.

    Without a key in the environment the engine does not start: open by accident is impossible.
    """

    def __init__(self, app: App) -> None:
        key = os.environ.get(KEY_VARIABLE, "")
        if not key:
            raise RuntimeError(f"{KEY_VARIABLE} is not set: refusing to serve without a key")
        self._app = app
        self._wanted = f"Bearer {key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "lifespan":
            await self._app(scope, receive, send)
        elif self._may_pass(scope):
            reader = _READERS.get(scope["path"]) if kind == "http" else None
            if kind == "http" and scope["path"] == REASONING_PATH:
                question = await _body(receive)
                await _tell(send, await asyncio.to_thread(count_reasoning, scope, question))
            elif reader is None:
                await self._app(scope, receive, send)
            else:
                # In a thread: a large vocabulary takes a while, and streams must flow meanwhile.
                await _tell(send, await asyncio.to_thread(reader, scope))
        elif kind == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await _refuse(send)

    def _may_pass(self, scope: Scope) -> bool:
        if scope["type"] == "http" and scope["path"] in OPEN_PATHS:
            return True
        return hmac.compare_digest(_authorization(scope["headers"]), self._wanted)


_READERS = {FACTS_PATH: read_facts, TOKENIZER_PATH: read_tokenizer}


def _authorization(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The one `Authorization` header; none or several count as nothing."""
    found = [value for name, value in headers if name.lower() == b"authorization"]
    return found[0] if len(found) == 1 else b""


async def _body(receive: Receive) -> bytes:
    """All of a request's body; of one that breaks off what came of it."""
    body, more = bytearray(), True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return bytes(body)


async def _refuse(send: Send) -> None:
    await _answer(send, 401, _BODY, (b"www-authenticate", b"Bearer"))


async def _tell(send: Send, document: bytes | None) -> None:
    """Not found: it is not known, or not of this engine."""
    await _answer(send, 404 if document is None else 200, document or b"{}")


async def _answer(send: Send, status: int, body: bytes, *more: tuple[bytes, bytes]) -> None:
    length = (b"content-length", str(len(body)).encode())
    headers = [(b"content-type", b"application/json"), length, *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
