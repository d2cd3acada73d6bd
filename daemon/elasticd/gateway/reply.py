"""The client's side of one request: nothing is sent before there is something to send.

Knows what clients can still understand; knows nothing of replicas and queues. "Answered" means
bytes of the answer: headers and SSE comments do not count, a request that has only those can start
elsewhere.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from multidict import CIMultiDict

from elasticd.gateway import sse
from elasticd.gateway.errors import ApiError, engine_refused
from elasticd.gateway.http.answer import Answer, Flow
from elasticd.weights.foreign import read_json

T = TypeVar("T")


class Reply:
    """What one client gets. `patience`: seconds a stream waits before each SSE comment."""

    __slots__ = ("_answer", "_events", "_patience", "_request_id", "_timer", "send")

    def __init__(self, answer: Answer, request_id: str, patience: float) -> None:
        self._answer = answer
        self._request_id = request_id
        self._patience = patience
        self._events = False
        self._timer: asyncio.TimerHandle | None = None
        self.send = answer.write
        """Bytes of the answer. Raises `ConnectionError`."""

    @property
    def begun(self) -> bool:
        """The head is with the client: the status can no longer change."""
        return self._answer.begun

    async def patiently(self, work: Coroutine[Any, Any, T]) -> T:
        """Awaits `work`; keeps the client of a stream company with SSE comments meanwhile."""
        self._keep_company()
        try:
            return await work
        finally:
            assert self._timer is not None
            self._timer.cancel()

    def _keep_company(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._patience, self._comment_again)

    def _comment_again(self) -> None:
        if not self._answer.gone:
            self.comment(sse.COMMENT)
            self._keep_company()

    def whole(self, status: int, headers: CIMultiDict[str], body: bytes) -> None:
        """A complete answer. After SSE comments it becomes the stream's only event."""
        if not self.begun:
            self._answer.whole(status, self._head(headers), body)
        else:
            self.send(sse.event(_one_line(status, body)))
            self.end()

    def json(self, status: int, body: bytes) -> None:
        """An answer of the gateway's own."""
        self.whole(status, CIMultiDict({"Content-Type": "application/json"}), body)

    def begin(self, status: int, headers: CIMultiDict[str], *, events: bool) -> None:
        """The head of a streamed answer, unless SSE comments have begun it before."""
        if not self.begun:
            self._events = events
            self._answer.begin(status, self._head(headers))

    @property
    def bytes_sent(self) -> int:
        """Of the answer itself."""
        return self._answer.bytes_sent

    def feed_from(self, flow: Flow | None) -> None:
        """The source of what is sent from now on: it is held up while the client reads slowly."""
        self._answer.feed_from(flow)

    async def drain(self) -> None:
        """Waits while the client reads slowly. Raises `ConnectionError`."""
        await self._answer.drain()

    def end(self) -> None:
        """The answer is complete."""
        self._answer.end()

    def fail(self, error: ApiError) -> None:
        """The error as the client can still understand it at this point.

        A begun answer that is no event stream is cut off hard: a clean end would be a lie.
        """
        if not self.begun:
            self._answer.whole(error.status, self._head(error.headers), error.body())
        elif self._events:
            self._answer.remark(sse.event(error.body()))
            self.end()
        else:
            self._answer.abort()

    def comment(self, text: bytes) -> None:
        """Something that clients of an event stream pass over."""
        self.begin(200, CIMultiDict(sse.HEADERS), events=True)
        self._answer.remark(text)

    def _head(self, headers: Mapping[str, str]) -> CIMultiDict[str]:
        head = headers if isinstance(headers, CIMultiDict) else CIMultiDict(headers)
        head["X-Request-Id"] = self._request_id
        head.setdefault("Server", "elasticd")
        return head


def _one_line(status: int, body: bytes) -> bytes:
    """A JSON body as the data of one event; anything else is told as an error."""
    try:
        return json.dumps(read_json(body)).encode()
    except ValueError:
        return engine_refused(status, "").body()
