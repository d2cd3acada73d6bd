"""A steady load on a real engine, and for each request how it ended, and whose fault that was."""

from __future__ import annotations

import asyncio
import enum
import itertools
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import aiohttp

LONGEST = 300.0
"""Seconds in which every request must have ended, however it did."""
_RECONNECT = 0.1
_THINKING = 0.5


class End(enum.StrEnum):
    """How a request ended, as its client saw it."""

    ANSWERED = "answered"
    TOLD = "told"
    """A stream that had begun, and ended with the error event of a lost replica."""
    CUT = "cut"
    """The connection broke."""
    FAILED = "failed"
    """Anything else: an error status, a stream that ended as if it were complete, too late."""


@dataclass(slots=True)
class Request:
    """One request; times by the monotonic clock. `replica`: who answers, once that is known.

    `begun`: text of the answer has come. `refused`: connections that nobody took.
    """

    stream: bool
    asked_at: float
    replica: str = ""
    begun: bool = False
    refused: int = 0
    end: End | None = None
    ended_at: float = 0.0
    story: str = ""


class SteadyLoad:
    """Clients that ask one thing after the other until `finish`, each to its end.

    A connection that nobody takes is tried again, as clients do; nothing else is.
    """

    def __init__(self, url: str, model: str, streaming: int, plain: int, tokens: int) -> None:
        self._url = f"{url}/v1/chat/completions"
        self._model = model
        self._tokens = tokens
        self._clients = [True] * streaming + [False] * plain
        self._numbers = itertools.count(1)
        self._enough = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.requests: list[Request] = []

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None))
        self._tasks = [asyncio.create_task(self._client(stream)) for stream in self._clients]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._session.close()

    async def finish(self) -> None:
        """Asks nothing new, and waits for everything that was asked."""
        self._enough.set()
        await asyncio.gather(*self._tasks)

    def ended(self, *ends: End) -> list[Request]:
        return [request for request in self.requests if request.end in ends]

    def streaming_on(self, replica: str) -> int:
        """Streams whose text has begun to come from there and that have not ended."""
        return sum(r.begun and r.end is None and r.replica == replica for r in self.requests)

    def answered_since(self, moment: float) -> int:
        return sum(r.asked_at >= moment for r in self.ended(End.ANSWERED))

    async def _client(self, stream: bool) -> None:
        while not self._enough.is_set():
            request = Request(stream, time.monotonic())
            self.requests.append(request)
            await self._ask(request)
            request.ended_at = time.monotonic()
            await asyncio.sleep(_THINKING)

    async def _ask(self, request: Request) -> None:
        try:
            async with asyncio.timeout(LONGEST):
                while not await self._connected(request):
                    request.refused += 1
                    await asyncio.sleep(_RECONNECT)
        except TimeoutError:
            request.end, request.story = End.FAILED, f"no end within {LONGEST:g} s"

    async def _connected(self, request: Request) -> bool:
        """Whether anybody took the connection; then how it went is in the request."""
        try:
            await self._ask_once(request)
        except aiohttp.ClientConnectorError:
            return False
        except (aiohttp.ClientError, OSError) as broken:
            request.end, request.story = End.CUT, repr(broken)
        return True

    async def _ask_once(self, request: Request) -> None:
        body = {
            "model": self._model,
            "stream": request.stream,
            "max_tokens": self._tokens,
            "messages": [{"role": "user", "content": f"Tell me story {next(self._numbers)}"}],
        }
        async with self._session.post(self._url, json=body) as response:
            request.replica = response.headers.get("X-Elasticd-Replica", "")
            if response.status != 200:
                request.end = End.FAILED
                request.story = f"{response.status} {await response.text()}"
            elif request.stream:
                await self._read(request, response)
            else:
                choices = (await response.json())["choices"]
                request.end = End.ANSWERED if _finished(choices) else End.FAILED

    async def _read(self, request: Request, response: aiohttp.ClientResponse) -> None:
        finished = False
        async for line in response.content:
            if not line.startswith(b"data: "):
                continue
            data = line[6:].strip()
            if data == b"[DONE]":
                request.end = End.ANSWERED if finished else End.FAILED
                return
            event: dict[str, Any] = json.loads(data)
            if "error" in event:
                lost = request.begun and event["error"].get("code") == "replica_lost"
                request.end, request.story = End.TOLD if lost else End.FAILED, str(event["error"])
                return
            choices = event.get("choices", ())
            request.begun = request.begun or any(c["delta"].get("content") for c in choices)
            finished = finished or _finished(choices)
        request.end, request.story = End.FAILED, "the stream ended without [DONE]"


def _finished(choices: Sequence[dict[str, Any]]) -> bool:
    return any(choice.get("finish_reason") is not None for choice in choices)
