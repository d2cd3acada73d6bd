"""A small load on the gated engine, and for each request how it ended and whose fault that was."""

from __future__ import annotations

import asyncio
import enum
import json
from collections import Counter
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import aiohttp

LONGEST = 150.0
"""Seconds in which every request must have ended, however it did."""
_STREAMED, _PLAIN = 20, 5
"""Tokens."""
_THINKING = 0.2
_RECONNECT = 0.1


class End(enum.StrEnum):
    """How a request ended, as its client saw it."""

    ANSWERED = "answered"
    TOLD = "told"
    """A stream that ended with an error event."""
    CUT = "cut"
    """The connection broke, so that no client takes it for an end."""
    SILENT = "silent"
    """A stream that ended as if it were complete, and was not."""
    WRONG = "wrong"
    """Other tokens than were asked for: missing, doubled, out of order."""
    REFUSED = "refused"
    """An error status."""
    LATE = "late"


@dataclass(slots=True)
class Request:
    """One request. `replica` is known once a stream has said who answers it."""

    tokens: int
    stream: bool
    replica: str | None = None
    end: End | None = None
    story: str = ""
    reconnects: int = 0


class WatchedLoad:
    """Clients that ask one thing after the other until `finish`, each to its end.

    A refused connection is tried again, as clients do; that is the only thing that is.
    """

    def __init__(self, url: str, model: str, streaming: int = 3, plain: int = 1) -> None:
        self._url = f"{url}/v1/chat/completions"
        self._model = model
        self._clients = [True] * streaming + [False] * plain
        self._enough = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.requests: list[Request] = []

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None))
        self._tasks = [asyncio.create_task(self._client(stream)) for stream in self._clients]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._session.close()

    async def finish(self) -> None:
        """Asks nothing new, and waits for everything that was asked."""
        self._enough.set()
        await asyncio.gather(*self._tasks)

    def stream_beside(self, tokens: int) -> None:
        """One more stream of so many tokens."""
        self._tasks.append(asyncio.create_task(self._ask(Request(tokens, stream=True))))

    def streaming_on(self) -> Counter[str]:
        """How many streams have begun and not ended, by replica."""
        return Counter(r.replica for r in self.requests if r.replica and r.end is None)

    def count(self, *ends: End) -> int:
        return sum(r.end in ends for r in self.requests)

    async def _client(self, stream: bool) -> None:
        while not self._enough.is_set():
            await self._ask(Request(_STREAMED if stream else _PLAIN, stream))
            try:
                async with asyncio.timeout(_THINKING):
                    await self._enough.wait()
            except TimeoutError:
                continue

    async def _ask(self, request: Request) -> None:
        self.requests.append(request)
        try:
            async with asyncio.timeout(LONGEST):
                await self._ask_connected(request)
        except TimeoutError:
            request.end = End.LATE

    async def _ask_connected(self, request: Request) -> None:
        while True:
            try:
                await self._ask_once(request)
            except aiohttp.ClientConnectorError:
                request.reconnects += 1
                await asyncio.sleep(_RECONNECT)
                continue
            except (aiohttp.ClientError, OSError) as broken:
                request.end, request.story = End.CUT, repr(broken)
            return

    async def _ask_once(self, request: Request) -> None:
        body = {
            "model": self._model,
            "stream": request.stream,
            "max_tokens": request.tokens,
            "messages": [{"role": "user", "content": "Count"}],
        }
        async with self._session.post(self._url, json=body) as response:
            if response.status != 200:
                request.end, request.story = End.REFUSED, await response.text()
            elif request.stream:
                await self._read(request, response)
            else:
                [choice] = (await response.json())["choices"]
                request.end = _judged(request, choice["message"]["content"])

    async def _read(self, request: Request, response: aiohttp.ClientResponse) -> None:
        text = ""
        async for line in response.content:
            if not line.startswith(b"data: "):
                continue
            data = line[6:].strip()
            if data == b"[DONE]":
                request.end = _judged(request, text)
                return
            event: dict[str, Any] = json.loads(data)
            if "error" in event:
                request.end, request.story = End.TOLD, str(event["error"])
                return
            request.replica = event["replica"]
            text += event["choices"][0]["delta"].get("content", "")
        request.end = End.SILENT


def _judged(request: Request, text: str) -> End:
    if text == "".join(f"{number} " for number in range(request.tokens)):
        return End.ANSWERED
    request.story = text
    return End.WRONG
