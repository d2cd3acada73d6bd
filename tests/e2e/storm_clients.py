"""Clients of a storm, and exactly what they were told."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from elasticd.gateway.continuation.seam import MARK
from tests.e2e.storm_questions import Question

_LEAK = 12
"""So many characters of a prompt at a seam are no accident."""


@dataclass(frozen=True)
class Crossing:
    """One seam: how many ids and characters the client had, and whether half a tool call."""

    ids: int
    length: int
    in_call: bool


@dataclass
class Told:
    """What a client was told. `ids` only if it asked; `calls`: name and arguments of each."""

    question: Question
    ids: list[int] = field(default_factory=list)
    text: str = ""
    thoughts: str = ""
    calls: list[list[str]] = field(default_factory=list)
    ends: list[tuple[str, Any]] = field(default_factory=list)
    usage: Any = None
    done: int = 0
    names: set[tuple[Any, ...]] = field(default_factory=set)
    seams: list[Crossing] = field(default_factory=list)
    leaks: int = 0
    error: str = ""
    replica: str = ""
    request_id: str = ""
    _at_seam: bool = False

    @property
    def meaning(self) -> tuple[Any, ...]:
        """What must not depend on who answered."""
        names = len(self.names)
        return (*self.words, self.ends, self.counted, self.done, names, self.error)

    @property
    def counted(self) -> dict[str, Any]:
        """The usage, but for the tokens of thoughts: how many an engine counts depends on how many
        came at once, so that it differs between two undisturbed answers as well."""
        usage = dict(self.usage or {})
        usage.pop("completion_tokens_details", None)
        return usage

    @property
    def words(self) -> tuple[str, str, list[list[str]]]:
        """All that was said."""
        return self.text, self.thoughts, self.calls

    @property
    def in_call(self) -> bool:
        """Whether it ends in the middle of a tool call's arguments."""
        if not self.calls or not self.calls[-1][1]:
            return False
        try:
            json.loads(self.calls[-1][1])
        except ValueError:
            return True
        return False

    def take(self, line: bytes) -> None:
        """One line of a stream."""
        if line.strip() == MARK.strip():
            self.seams.append(Crossing(len(self.ids), len(self.text), self.in_call))
            self._at_seam = True
        if not line.startswith(b"data: "):
            return
        if line[6:].strip() == b"[DONE]":
            self.done += 1
            return
        document = json.loads(line[6:])
        if "error" in document:
            self.error = str(document["error"])
            return
        self.take_document(document)

    def take_document(self, document: dict[str, Any]) -> None:
        """One event, or a whole answer that was not streamed."""
        self.names.add(tuple(document[n] for n in ("id", "created", "model", "object")))
        self.usage = document.get("usage") or self.usage
        for choice in document["choices"]:
            words = choice.get("delta") or choice.get("message") or {"content": choice.get("text")}
            self._say(words)
            self.ids += choice.get("token_ids") or ()
            if choice["finish_reason"] is not None:
                self.ends.append((choice["finish_reason"], choice.get("stop_reason")))

    def _say(self, words: dict[str, Any]) -> None:
        text = words.get("content") or ""
        thought = words.get("reasoning") or words.get("reasoning_content") or ""
        self.text += text
        self.thoughts += thought
        for part in words.get("tool_calls") or ():
            while len(self.calls) <= part.get("index", len(self.calls)):
                self.calls.append(["", ""])
            call, function = self.calls[part.get("index", -1)], part["function"]
            call[0] += function.get("name") or ""
            call[1] += function.get("arguments") or ""
        if self._at_seam and (text or thought):
            self._at_seam = False
            self.leaks += self.question.prompt[:_LEAK] in text + thought


class Client:
    """Asks questions through the gateway. `heard` is called with each answer as it grows."""

    def __init__(self, url: str, model: str) -> None:
        self._url = url
        self._model = model
        limits = aiohttp.ClientTimeout(total=None)
        self._session = aiohttp.ClientSession(
            timeout=limits, connector=aiohttp.TCPConnector(limit=0)
        )

    async def aclose(self) -> None:
        await self._session.close()

    async def ask(
        self, question: Question, ids: bool = False, heard: Callable[[Told], None] | None = None
    ) -> Told:
        told = Told(question)
        body = {"model": self._model, "temperature": 0, **question.fields}
        body["stream"] = not question.quick
        if ids:
            body["return_token_ids"] = True
        try:
            async with self._session.post(self._url + question.path, json=body) as response:
                told.replica = response.headers.get("X-Elasticd-Replica", "")
                told.request_id = response.headers.get("X-Request-Id", "")
                if response.status != 200:
                    told.error = f"{response.status} {await response.text()}"
                elif question.quick:
                    told.take_document(await response.json())
                else:
                    await self._read(response, told, heard)
        except (aiohttp.ClientError, OSError, ValueError) as bad:
            told.error = repr(bad)
        return told

    @staticmethod
    async def _read(
        response: aiohttp.ClientResponse, told: Told, heard: Callable[[Told], None] | None
    ) -> None:
        async for line in response.content:
            told.take(line)
            if heard is not None:
                heard(told)
