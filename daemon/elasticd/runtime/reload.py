"""Reads the configuration again while the controller runs: all of it holds, or none.

The old one stays whenever anything is wrong with the new one. Reloads come one after the other;
one that is asked for while another is under way follows it, for the file may have changed since.
None takes longer than `LIMIT`, whatever the file lies on, so that the next one gets its turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from elasticd.core.events import ReloadRefused
from elasticd.errors import ElasticdError, UsageError
from elasticd.runtime.config import Wishes
from elasticd.runtime.ports import Clock, Emit
from elasticd.settings.reload import Reload
from elasticd.threads import in_thread

LIMIT = 30.0
"""Seconds for reading and judging; a configuration takes tenths of one."""

BY_SIGNAL = "SIGHUP"

_log = structlog.get_logger()


class MustNotReplace(UsageError):
    """The file is valid and yet must not replace what holds now."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one reload; `problem` empty: what the file says holds now.

    `changed` has the paths that took effect, `needs_restart` those that wait for a restart.
    """

    at: float
    problem: str = ""
    changed: tuple[str, ...] = ()
    needs_restart: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class Reloader:
    """Holds the wishes in force.

    `apply` puts new ones into force at once, told which paths changed, or raises and has changed
    nothing; `machines` counts the living ones by pool; `emit` tells the core what was refused.
    """

    def __init__(
        self,
        wishes: Wishes,
        apply: Callable[[Wishes, tuple[str, ...]], None],
        machines: Callable[[], Mapping[str, int]],
        clock: Clock,
        emit: Emit,
        limit: float = LIMIT,
    ) -> None:
        self._first = self._current = wishes
        self._apply = apply
        self._machines = machines
        self._clock = clock
        self._emit = emit
        self._limit = limit
        self._began: float | None = None
        self._asked = asyncio.Event()
        self._one_at_a_time = asyncio.Lock()
        self._last: Outcome | None = None
        self._number = 0

    @property
    def wishes(self) -> Wishes:
        """What holds now."""
        return self._current

    def request(self) -> None:
        """Asks for a reload and returns; `run` does it."""
        self._asked.set()

    async def run(self) -> None:
        """Does what is requested, until it is cancelled."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            await self.reload(BY_SIGNAL)

    async def reload(self, by: str) -> dict[str, Any]:
        """Reads, judges, applies; answers with what `summary` tells from then on.

        `by`: who asks, for the journal.
        """
        async with self._one_at_a_time:
            self._began = self._clock.now()
            try:
                self._last = await self._attempt()
            finally:
                self._began = None
            self._number += 1
            _tell(self._last)
            if self._last.problem:
                self._emit(ReloadRefused(self._last.problem, by))
            return self.summary()

    def summary(self) -> dict[str, Any]:
        """JSON-able. `number` of the last reload, 0: none yet; `at_age` in seconds, `None` then.
        `running_for`: seconds since the one under way began, `None` without one."""
        now, began, last = self._clock.now(), self._began, self._last
        told = last or Outcome(now, warnings=self._first.warnings)
        return {
            "number": self._number,
            "at_age": None if last is None else now - last.at,
            "running_for": None if began is None else now - began,
            "problem": told.problem,
            "changed": list(told.changed),
            "needs_restart": list(told.needs_restart),
            "warnings": list(told.warnings),
        }

    async def _attempt(self) -> Outcome:
        try:
            newer = await in_thread(self._current.reread, self._limit, "reload")
            # No await from here on: what is counted and compared is what is replaced.
            verdict = self._judged(newer)
            # What needs a restart is what differs from what this process was started with,
            # however many reloads ago it was changed.
            waiting = self._first.compare(newer, {}).needs_restart
            self._apply(newer, verdict.changed)
        except ElasticdError as refused:
            return self._refused(str(refused))
        except TimeoutError:
            return self._refused(
                f"reading and checking the configuration took longer than {self._limit:g} s; see "
                "whether the file systems that it and what it names lie on answer"
            )
        except Exception as fault:  # whatever is wrong with a new file, the old one goes on
            _log.exception("reload_fault")
            return self._refused(f"the configuration cannot be read: {fault!r}")
        self._current = newer
        return Outcome(self._clock.now(), "", verdict.changed, waiting, newer.warnings)

    def _judged(self, newer: Wishes) -> Reload:
        verdict = self._current.compare(newer, self._machines())
        if verdict.refused:
            raise MustNotReplace("; ".join(f"{p.path}: {p.message}" for p in verdict.refused))
        return verdict

    def _refused(self, problem: str) -> Outcome:
        """What still waits for a restart still does."""
        last = self._last
        return Outcome(
            self._clock.now(),
            problem,
            needs_restart=last.needs_restart if last is not None else (),
            warnings=self._current.warnings,
        )


def _tell(outcome: Outcome) -> None:
    if outcome.problem:
        _log.error("reload_refused", problem=outcome.problem, effect="the old configuration holds")
        return
    _log.info("reloaded", changed=outcome.changed, needs_restart=outcome.needs_restart)
    for warning in outcome.warnings:
        _log.warning("configuration_warning", warning=warning)
