"""`elasticd run` and SIGHUP: the children read their configuration again, or none of them does.

The controller judges first, for only it knows the machines; the gateway follows when the new
configuration holds. While no controller answers, the file is judged here: a controller that starts
reads the new one anyway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
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


class Reloads:
    """Hands SIGHUP on, follows what `elasticd reload` did, and says what came of it.

    `notice` is shown each status; `wanted` is set when there is something to do.
    """

    def __init__(self, admin: AdminClient, reread: Callable[[], Configuration], say: Tell) -> None:
        self._admin = admin
        self._reread = reread
        self._say = say
        self._hung_up = False
        self._seen: Mapping[str, Any] | None = None
        self.wanted = asyncio.Event()

    def hang_up(self) -> None:
        """SIGHUP has come."""
        self._hung_up = True
        self.wanted.set()

    def notice(self, status: Mapping[str, Any]) -> None:
        """Someone may have told the controller alone to read its file again."""
        last = _last_reload(status)
        if self._seen is None:
            self._seen = last  # of before our time
        elif last.get("number") and last["number"] != self._seen.get("number"):
            self.wanted.set()

    async def follow(self, children: Sequence[Child]) -> Configuration | None:
        """Does what is wanted; the new configuration, if there is one and it holds."""
        self.wanted.clear()
        hung_up, self._hung_up = self._hung_up, False
        before, outcome = self._seen or {}, await self._look()
        judge = next((child for child in children if child.spec.name == "controller"), None)
        if hung_up:
            before, outcome = outcome, {}
            if judge is not None and judge.hang_up():
                outcome = await self._outcome(before)
        elif outcome.get("number") == before.get("number"):
            return None
        self._seen = outcome or self._seen
        newer = await self._taken(outcome)
        if newer is None:
            return None
        for child in children:
            if child.spec.reloads and child is not judge:
                child.hang_up()
        _new_patience(newer, children)
        self._say(_in_words(outcome, before))
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

    async def _look(self) -> Mapping[str, Any]:
        """The controller's last reload; empty while it does not tell."""
        try:
            return _last_reload(await asyncio.to_thread(self._admin.status))
        except ElasticdError:
            return {}

    async def _outcome(self, before: Mapping[str, Any]) -> Mapping[str, Any]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _PATIENCE
        while loop.time() < deadline:
            now = await self._look()
            if now.get("number") and now["number"] != before.get("number"):
                return now
            if now.get("running_for") is not None:
                deadline = loop.time() + _PATIENCE
            await asyncio.sleep(_POLL)
        return {}


def _last_reload(status: Mapping[str, Any]) -> Mapping[str, Any]:
    told: Mapping[str, Any] = status.get("controller", {}).get("reload", {})
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
