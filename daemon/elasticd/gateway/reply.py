"""The client's side of one request: nothing is sent before there is something to send.

Knows HTTP towards the client; knows nothing of replicas and queues. "Answered" means bytes of the
answer: headers and SSE comments do not count, a request that has only those can start elsewhere.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from aiohttp import web
from multidict import CIMultiDict

from elasticd.gateway import sse
from elasticd.gateway.errors import ApiError, engine_refused

T = TypeVar("T")


class Reply:
    """What one client gets. `patience`: seconds a stream waits before each SSE comment."""

    def __init__(self, request: web.BaseRequest, request_id: str, patience: float) -> None:
        self._request = request
        self._request_id = request_id
        self._patience = patience
        self._response: web.StreamResponse | None = None
        self._events = False
        self.bytes_sent = 0
        """Of the answer itself."""

    @property
    def response(self) -> web.StreamResponse:
        """What the HTTP server is given at the end."""
        assert self._response is not None, "every request is answered"
        return self._response

    @property
    def begun(self) -> bool:
        """The head is with the client: the status can no longer change."""
        return self._response is not None and self._response.prepared

    async def patiently(self, work: Coroutine[Any, Any, T]) -> T:
        """Awaits `work`; keeps the client of a stream company with SSE comments meanwhile."""
        task = asyncio.ensure_future(work)
        try:
            while not (await asyncio.wait({task}, timeout=self._patience))[0]:
                await self.comment(sse.COMMENT)
            return task.result()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def whole(self, status: int, headers: CIMultiDict[str], body: bytes) -> None:
        """A complete answer. After SSE comments it becomes the stream's only event."""
        if not self.begun:
            self._response = web.Response(status=status, headers=self._head(headers), body=body)
            self.bytes_sent += len(body)
        else:
            await self.write(sse.event(_one_line(status, body)))
            await self.end()

    async def json(self, status: int, body: bytes) -> None:
        """An answer of the gateway's own."""
        await self.whole(status, CIMultiDict({"Content-Type": "application/json"}), body)

    async def begin(self, status: int, headers: CIMultiDict[str], *, events: bool) -> None:
        """The head of a streamed answer, unless SSE comments have begun it before."""
        if self.begun:
            return
        self._events = events
        self._response = web.StreamResponse(status=status, headers=self._head(headers))
        await self._response.prepare(self._request)

    async def write(self, data: bytes) -> None:
        """Bytes of the answer; waits while the client reads slowly."""
        await self.response.write(data)
        self.bytes_sent += len(data)

    async def end(self) -> None:
        """The answer is complete."""
        await self.response.write_eof()

    async def fail(self, error: ApiError) -> None:
        """The error as the client can still understand it at this point.

        A begun answer that is no event stream is cut off hard: a clean end would be a lie.
        """
        if not self.begun:
            head = self._head(CIMultiDict(error.headers))
            self._response = web.Response(status=error.status, headers=head, body=error.body())
        elif self._events:
            await self.response.write(sse.event(error.body()))
            await self.end()
        elif self._request.transport is not None:
            self._request.transport.abort()

    async def comment(self, text: bytes) -> None:
        """Something that clients of an event stream pass over."""
        await self.begin(200, CIMultiDict(sse.HEADERS), events=True)
        await self.response.write(text)

    def _head(self, headers: Mapping[str, str]) -> CIMultiDict[str]:
        head = CIMultiDict(headers)
        head["X-Request-Id"] = self._request_id
        head.setdefault("Server", "elasticd")
        return head


def _one_line(status: int, body: bytes) -> bytes:
    """A JSON body as the data of one event; anything else is told as an error."""
    try:
        return json.dumps(json.loads(body)).encode()
    except ValueError:
        return engine_refused(status, "").body()
