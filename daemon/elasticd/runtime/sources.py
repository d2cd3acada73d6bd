"""Finds out, once, which commit each `hf:` source is, and the shape of its model.

One task a source, which asks for ever with growing pauses; a hub that hangs holds up nobody else,
and whatever one answers is a problem of its source alone. What was found is kept in `source_file`
and not asked again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import aiohttp
import structlog
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

from elasticd.core.fit import ModelShape, read_shape
from elasticd.runtime.hub_api import Hub, HubApi
from elasticd.runtime.source_file import Entry, SourceFile
from elasticd.settings.sources import Resolved
from elasticd.weights.answers import HubAway, HubRefused
from elasticd.weights.foreign import printable
from elasticd.weights.source import HubSource, parse_source

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Pauses:
    """Seconds between questions: about the first, growing to the longest.

    A refusal is asked again too: licences are accepted and repositories appear.
    """

    first: float = 2.0
    longest: float = 300.0


class SourceResolver:
    """Owns what is known of sources. `on_change` is called, in the loop, after each piece of news.

    Sources go by their text, `hf:REPO@REVISION`.
    """

    def __init__(
        self,
        source_file: SourceFile,
        hub: Hub,
        on_change: Callable[[], None],
        pauses: Pauses | None = None,
    ) -> None:
        self._file = source_file
        self._hub = hub
        self._on_change = on_change
        self._pauses = pauses or Pauses()
        self._sources: dict[str, HubSource] = {}
        self._resolved: dict[str, Resolved] = {}
        self._problems: dict[str, str] = {}
        self._wake = asyncio.Event()
        self._restart = False

    def resolved(self) -> Mapping[str, Resolved]:
        """What is known; a source whose commit is not known yet is missing."""
        return MappingProxyType(dict(self._resolved))

    def problems(self) -> Mapping[str, str]:
        """Why something is not known: one sentence a source, with what to do."""
        return MappingProxyType(dict(self._problems))

    def set_sources(self, sources: Iterable[str], hub: Hub | None = None) -> None:
        """What is configured now, and where the hub is now. Known ones are not asked again.

        `resolved` shows what is on the disk as soon as this returns.
        """
        self._sources = {text: parse_source(text) for text in sources}
        self._file.keep(self._sources)
        self._restart = self._restart or hub not in (None, self._hub)
        self._hub = hub or self._hub
        self._problems = {s: p for s, p in self._problems.items() if s in self._sources}
        self._resolved = {}
        for text, source in self._sources.items():
            self._show(text, source)
        self._wake.set()

    async def run(self) -> None:
        """Until it is cancelled."""
        async with aiohttp.ClientSession(trust_env=True) as session, asyncio.TaskGroup() as group:
            asking: dict[str, asyncio.Task[None]] = {}
            while True:
                self._wake.clear()
                for text, task in list(asking.items()):
                    if self._restart or text not in self._sources or task.done():
                        asking.pop(text).cancel()
                self._restart = False
                for text, source in self._sources.items():
                    if text not in asking and not self._is_complete(text):
                        ask = self._find_out(HubApi(session, self._hub), text, source)
                        asking[text] = group.create_task(ask, name=f"source {text}")
                await self._wake.wait()

    async def _find_out(self, api: HubApi, text: str, source: HubSource) -> None:
        """Until the source is known completely."""
        asking = AsyncRetrying(
            # A fault of ours in reading an answer, too, must not take the fleet's controller along.
            retry=retry_if_exception_type(Exception),
            wait=wait_random_exponential(
                multiplier=self._pauses.first, min=self._pauses.first, max=self._pauses.longest
            ),
            before_sleep=lambda state: self._failed(text, state),
        )
        await asking(self._look, api, text, source)
        self._problems.pop(text, None)
        self._show(text, source)
        self._on_change()

    async def _look(self, api: HubApi, text: str, source: HubSource) -> None:
        entry = self._file.get(text)
        if entry is None:
            told = await api.revision(source)
            commit = source.revision if source.is_exact else told.commit
            # Before anything else can fail: asked again, the revision may be another commit.
            entry = Entry(commit, told.weight_bytes)
            self._file.put(text, entry)
        config = await api.config(source.at(entry.commit))
        self._file.put(text, replace(entry, config=config, complete=True))

    def _failed(self, text: str, state: RetryCallState) -> None:
        problem = _sentence(text, state.outcome.exception() if state.outcome else None)
        if self._problems.get(text) == problem:
            return
        _log.warning("source_not_resolved", source=text, problem=problem)
        self._problems[text] = problem
        self._on_change()

    def _is_complete(self, text: str) -> bool:
        entry = self._file.get(text)
        return entry is not None and entry.complete

    def _show(self, text: str, source: HubSource) -> None:
        """Nothing is bought for files that cannot be read: a commit alone is not shown.

        A commit that the operator names needs no hub to be known.
        """
        entry = self._file.get(text)
        if entry is not None and entry.complete:
            shape, problem = _shape(text, entry)
            self._resolved[text] = Resolved(entry.commit, shape)
            if problem:
                self._problems[text] = problem
        elif source.is_exact:
            self._resolved[text] = Resolved(source.revision, None)


def _sentence(text: str, error: BaseException | None) -> str:
    if isinstance(error, HubAway | HubRefused):
        return printable(str(error))
    return printable(
        f"{text} could not be looked up: {error!r}; it is tried again, and a commit of 40 hex "
        "digits as the revision needs no looking up"
    )


def _shape(text: str, entry: Entry) -> tuple[ModelShape | None, str]:
    """The shape, or why it is not known: then the model is served all the same."""
    if entry.config is None:
        return None, f"{text} has no config.json: how much memory it needs is not known"
    try:
        return read_shape(entry.config, entry.weight_bytes), ""
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as problem:
        return None, printable(f"{text}: how much memory it needs is not known: {problem}")
