"""`elasticd run` and SIGHUP: the children read their configuration again, or none of them does.

The controller judges first, for only it knows the machines; the gateway follows when the new
configuration holds. While no controller answers, the file is judged here: a controller that starts
reads the new one anyway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from elasticd.cli.admin_client import AdminClient
from elasticd.cli.run_display import Tell
from elasticd.errors import ElasticdError, UsageError
from elasticd.threads import in_thread

if TYPE_CHECKING:
    from elasticd.ops.supervisor import Child
    from elasticd.settings.load import Configuration

_POLL = 0.1
_PATIENCE = 15.0
"""Seconds in which a controller that lives has begun to read a file, and says so."""

_READING = 30.0
"""Seconds that reading and checking it may take, here as in the controller."""

_AT_STOP = 5.0
"""Seconds of a stop in which the controller may say what holds."""


class Reloads:
    """Hands SIGHUP on, follows what `elasticd reload` did, and says what came of it.

    `notice` is shown each status; `wanted` is set when there is something to do.
    """

    def __init__(self, admin: AdminClient, reread: Callable[[], Configuration], say: Tell) -> None:
        self._admin = admin
        self._reread = reread
        self._say = say
        self._hung_up = False
        self._handed_on = False
        self._seen: Mapping[str, Any] | None = None
        self._pid: int | None = None
        self.wanted = asyncio.Event()

    def hang_up(self) -> None:
        """SIGHUP has come."""
        self._hung_up = True
        self.wanted.set()

    def notice(self, status: Mapping[str, Any]) -> None:
        """Someone may have told the controller alone to read its file again."""
        last = _last_reload(status)
        if self._is_another(_pid(status)):
            self.wanted.set()  # it has read the file at its start
        if self._seen is None:
            self._seen = last  # of before our time
        elif last.get("number") and last["number"] != self._seen.get("number"):
            self.wanted.set()

    async def follow(self, children: Sequence[Child]) -> Configuration | None:
        """Does what is wanted; the new configuration, if there is one and it holds."""
        self.wanted.clear()
        hung_up, self._hung_up = self._hung_up, False
        before, (pid, outcome) = self._seen or {}, await self._look()
        if self._is_another(pid) and not hung_up:
            return await self._of_another_life(pid, outcome)
        judge = next((child for child in children if child.spec.name == "controller"), None)
        if hung_up:
            before, outcome = outcome, {}
            if judge is not None and judge.hang_up():
                self._handed_on = True
                outcome = await self._outcome(before)
        elif outcome.get("number") == before.get("number"):
            return None
        newer = await self._taken(outcome)
        # A stop may cut this short: seen is only what has been followed to its end.
        self._pid, self._seen, self._handed_on = pid or self._pid, outcome or self._seen, False
        if newer is None:
            return None
        for child in children:
            if child.spec.reloads and child is not judge:
                child.hang_up()
        _new_patience(newer, children)
        self._say(_in_words(outcome, before))
        return newer

    async def at_stop(self, children: Sequence[Child]) -> Configuration | None:
        """What the controller has taken since the last look; `None`: nothing. A reload that is
        under way is waited for a little. Call it when nothing else here runs any more."""
        outcome: Mapping[str, Any] = {}
        news = False
        with suppress(TimeoutError, ElasticdError):
            async with asyncio.timeout(_AT_STOP):
                while True:
                    status = await in_thread(self._admin.status, _AT_STOP, "reload")
                    outcome, news = _last_reload(status), self._is_news(status)
                    if outcome.get("running_for") is None and (news or not self._handed_on):
                        break
                    await asyncio.sleep(_POLL)
        newer = await self._taken(outcome) if news else None
        if newer is not None:
            _new_patience(newer, children)
        return newer

    def _is_news(self, status: Mapping[str, Any]) -> bool:
        number = _last_reload(status).get("number")
        reloaded = bool(number) and number != (self._seen or {}).get("number")
        return reloaded or self._is_another(_pid(status))

    def _is_another(self, pid: int | None) -> bool:
        """Whether this is a later life of the controller than the one that was heard before."""
        self._pid = self._pid or pid
        return pid is not None and pid != self._pid

    async def _of_another_life(
        self, pid: int | None, outcome: Mapping[str, Any]
    ) -> Configuration | None:
        newer = await self._taken(outcome)
        self._pid, self._seen = pid, outcome
        return newer

    async def _taken(self, outcome: Mapping[str, Any]) -> Configuration | None:
        problem = outcome.get("problem", "")
        if not problem:
            try:
                return await in_thread(self._reread, _READING, "reload")
            except UsageError as bad:
                problem = str(bad)
            except TimeoutError:
                problem = f"it could not be read and checked within {_READING:g} s"
        self._say(f"configuration refused, the old one stays in force: {problem}")
        return None

    async def _look(self) -> tuple[int | None, Mapping[str, Any]]:
        """The controller and its last reload; empty while it does not tell."""
        try:
            status = await asyncio.to_thread(self._admin.status)
        except ElasticdError:
            return None, {}
        return _pid(status), _last_reload(status)

    async def _outcome(self, before: Mapping[str, Any]) -> Mapping[str, Any]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _PATIENCE
        while loop.time() < deadline:
            _, now = await self._look()
            if now.get("only_observes"):
                return {"problem": now["only_observes"]}
            if now.get("number") and now["number"] != before.get("number"):
                return now
            if now.get("running_for") is not None:
                deadline = loop.time() + _PATIENCE
            await asyncio.sleep(_POLL)
        return {}


def _pid(status: Mapping[str, Any]) -> int | None:
    pid: int | None = (status.get("controller") or {}).get("pid")
    return pid


def _last_reload(status: Mapping[str, Any]) -> Mapping[str, Any]:
    told: Mapping[str, Any] = (status.get("controller") or {}).get("reload") or {}
    if idle := status.get("observe_only"):  # it reads no file, and waiting for it is in vain
        return {**told, "only_observes": str(idle.get("text"))}
    return told


def _new_patience(newer: Configuration, children: Sequence[Child]) -> None:
    """How long each child may take to stop."""
    from elasticd.cli.run_plan import parts

    patience = {part.spec.name: part.spec.stop_grace for part in parts(newer)}
    for child in children:
        grace = patience.get(child.spec.name, child.spec.stop_grace)
        child.spec = replace(child.spec, stop_grace=grace)


def _in_words(outcome: Mapping[str, Any], before: Mapping[str, Any]) -> str:
    if not outcome:
        return "configuration is valid and taken; the controller has not said yet what it changes"
    changed = ", ".join(outcome.get("changed", ())) or "nothing"
    text = f"configuration read again; changed: {changed}"
    if outcome.get("needs_restart"):
        text += f"; only after a restart: {', '.join(outcome['needs_restart'])}"
    known = before.get("warnings", ())
    for warning in outcome.get("warnings", ()):
        if warning not in known:
            text += f"\n  warning: {warning}"
    return text
