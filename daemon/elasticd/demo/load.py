"""A light load of streamed chats, and an exact account of what the clients saw."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import aiohttp


@dataclass(slots=True)
class Account:
    """What clients saw. `lost`: a stream that ended with an error event or without its end.

    `refused`: an answer with an error status. `first_token`: seconds, one per answered request.
    """

    answered: int = 0
    lost: int = 0
    refused: int = 0
    tokens: int = 0
    first_token: list[float] = field(default_factory=list)
    stories: list[str] = field(default_factory=list)

    def median_first_token(self) -> float | None:
        """Seconds; `None` when nothing was answered."""
        ordered = sorted(self.first_token)
        return ordered[len(ordered) // 2] if ordered else None


class Load:
    """`clients` streaming chats side by side, one after the other each, until left.

    `pause`: seconds that each client thinks between two chats.
    """

    def __init__(
        self, url: str, model: str, clients: int, max_tokens: int = 200, pause: float = 0.0
    ) -> None:
        self._url = f"{url}/v1/chat/completions"
        self._model = model
        self._clients = clients
        self._max_tokens = max_tokens
        self._pause = pause
        self._numbers = itertools.count(1)
        self._tasks: list[asyncio.Task[None]] = []
        self.account = Account()
        self.trouble = asyncio.Event()
        """Set at the first request that was not answered to its end."""

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None))
        self._tasks = [asyncio.create_task(self._client()) for _ in range(self._clients)]
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

    async def _client(self) -> None:
        while True:
            ok = await self.ask(f"Tell me story number {next(self._numbers)}")
            if not ok:
                self.trouble.set()
            # A client in trouble does not hammer.
            await asyncio.sleep(self._pause if ok else max(self._pause, 0.2))

    async def ask(self, prompt: str) -> bool:
        """One streamed chat, counted; whether it was answered to its end."""
        body = {
            "model": self._model,
            "stream": True,
            "max_tokens": self._max_tokens,
            "messages": [{"role": "user", "content": prompt}],
        }
        asked = time.monotonic()
        try:
            async with self._session.post(self._url, json=body) as response:
                if response.status != 200:
                    self.account.refused += 1
                    self.account.stories.append(f"{response.status} {await response.text()}")
                    return False
                ended = await self._read(response, asked)
        except (aiohttp.ClientError, OSError) as bad:
            ended = repr(bad)
        if ended:
            self.account.lost += 1
            self.account.stories.append(ended)
            return False
        self.account.answered += 1
        return True

    async def _read(self, response: aiohttp.ClientResponse, asked: float) -> str:
        """Reads a stream to its end; empty when it ended well, else what was wrong."""
        first, finished = True, False
        async for line in response.content:
            if not line.startswith(b"data: "):
                continue
            data = line[6:].strip()
            if data == b"[DONE]":
                return "" if finished else "[DONE] without a finish reason"
            event: dict[str, Any] = json.loads(data)
            if "error" in event:
                return f"error event: {event['error']}"
            for choice in event.get("choices", ()):
                if choice.get("delta", {}).get("content"):
                    self.account.tokens += 1
                    if first:
                        self.account.first_token.append(time.monotonic() - asked)
                        first = False
                finished = finished or choice.get("finish_reason") is not None
        return "the stream ended without [DONE]"


async def first_token(url: str, model: str, limit: float) -> float:
    """Seconds until a first streamed token comes, trying again while nobody answers."""
    started = time.monotonic()
    async with asyncio.timeout(limit):
        while True:
            load = Load(url, model, 0, max_tokens=1)
            async with load:
                with contextlib.suppress(aiohttp.ClientError):
                    if await load.ask("Hello"):
                        return time.monotonic() - started
            await asyncio.sleep(0.2)
