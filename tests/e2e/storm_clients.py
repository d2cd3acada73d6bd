"""Clients of a storm: questions of every kind that is continued, and exactly what was answered."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from elasticd.demo.texts import PLAIN
from elasticd.gateway.continuation.seam import MARK

CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"


@dataclass(frozen=True)
class Question:
    """One request; `fields` are those of its body. `stop`: it ends at a stop string."""

    name: str
    path: str
    fields: dict[str, Any]
    stop: bool = False


def questions() -> list[Question]:
    """Long answers in many scripts, with and without what the engine must not be asked for."""
    found: list[Question] = []
    usage = {"stream_options": {"include_usage": True}}
    for number, text in enumerate(PLAIN):
        chat = {"messages": [{"role": "user", "content": text.prompt}], **usage}
        late = text.body[int(len(text.body) * 0.8) :][:9]
        forms: list[tuple[str, str, dict[str, Any]]] = [
            ("chat", CHAT, {**chat, "max_tokens": 700}),
            ("stop", CHAT, {**chat, "max_tokens": 700, "stop": ["no such words", late]}),
            ("limit", CHAT, {**chat, "max_completion_tokens": 150 + 10 * number}),
            ("text", COMPLETION, {"prompt": text.body[:20], "max_tokens": 300, **usage}),
            (
                "shown stop",
                CHAT,
                {**chat, "max_tokens": 700, "stop": late, "include_stop_str_in_output": True},
            ),
        ]
        found += [Question(f"{name} {number}", p, f, "stop" in name) for name, p, f in forms]
    return found


@dataclass
class Told:
    """What a client was told. `seams`: how many tokens it had at each; `ids` only if it asked."""

    question: Question
    ids: list[int] = field(default_factory=list)
    text: str = ""
    ends: list[tuple[str, Any]] = field(default_factory=list)
    usage: Any = None
    done: int = 0
    names: set[tuple[Any, ...]] = field(default_factory=set)
    seams: list[int] = field(default_factory=list)
    error: str = ""
    replica: str = ""

    @property
    def meaning(self) -> tuple[Any, ...]:
        """What must not depend on who answered."""
        return self.text, self.ends, self.usage, self.done, len(self.names), self.error


class Client:
    """Asks questions through the gateway. `heard` is called with each answer as it grows."""

    def __init__(self, url: str, model: str) -> None:
        self._url = url
        self._model = model
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None))

    async def aclose(self) -> None:
        await self._session.close()

    async def ask(
        self, question: Question, ids: bool = False, heard: Callable[[Told], None] | None = None
    ) -> Told:
        told = Told(question)
        body = {"model": self._model, "stream": True, "temperature": 0, **question.fields}
        if ids:
            body["return_token_ids"] = True
        try:
            async with self._session.post(self._url + question.path, json=body) as response:
                told.replica = response.headers.get("X-Elasticd-Replica", "")
                if response.status != 200:
                    told.error = f"{response.status} {await response.text()}"
                    return told
                async for line in response.content:
                    self._take(told, line)
                    if heard is not None:
                        heard(told)
        except (aiohttp.ClientError, OSError) as bad:
            told.error = repr(bad)
        return told

    @staticmethod
    def _take(told: Told, line: bytes) -> None:
        if line.strip() == MARK.strip():
            told.seams.append(len(told.ids))
        if not line.startswith(b"data: "):
            return
        if line[6:].strip() == b"[DONE]":
            told.done += 1
            return
        document = json.loads(line[6:])
        if "error" in document:
            told.error = str(document["error"])
            return
        told.names.add(tuple(document[n] for n in ("id", "created", "model", "object")))
        told.usage = document.get("usage") or told.usage
        for choice in document["choices"]:
            told.text += choice["delta"].get("content", "") if "delta" in choice else choice["text"]
            told.ids += choice.get("token_ids") or ()
            if choice["finish_reason"] is not None:
                told.ends.append((choice["finish_reason"], choice.get("stop_reason")))


class Trigger:
    """Strikes once one of the answers has grown so far; the replica to strike is its own."""

    def __init__(self, choice: random.Random) -> None:
        self._tokens = choice.randrange(3, 40)
        self.struck: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def heard(self, told: Told) -> None:
        long = len(told.ids) >= self._tokens
        if long and told.replica and not told.done and not self.struck.done():
            self.struck.set_result(told.replica)


class Again:
    """The same for an answer that already goes on elsewhere, a few tokens after its seam."""

    def __init__(self) -> None:
        self.struck: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def heard(self, told: Told) -> None:
        if told.seams and len(told.ids) > told.seams[-1] + 2 and not self.struck.done():
            self.struck.set_result(None)
