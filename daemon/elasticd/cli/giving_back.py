"""The end of `elasticd run` with `release`: every machine goes back, as long as that can work.

Only the controller can give machines back. One that restarts is waited for; one that never answers
must not keep `elasticd run` from ending: then it is said what may be left, and what to do about it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from elasticd.cli.admin_client import AdminClient, OnlyObserves
from elasticd.cli.common import must_act
from elasticd.cli.descent import Descent, gist, living
from elasticd.cli.run_display import Tell
from elasticd.errors import ElasticdError, NotReachable
from elasticd.threads import in_thread

PATIENCE = 60.0
"""Seconds of silence. Between two lives of a controller there are up to thirty."""

_MOST_DEATHS = 5
"""Of a controller that answers now and then and always dies, no more is expected."""

_STANDSTILL, _HURRIED_STANDSTILL = 600.0, 120.0
"""Seconds in which the controller answers and nothing ends; after that, or sooner in a hurry, no
more is expected: a provider that is away may stay away."""

_POLL = 0.5
_LOOK = 15.0
_HURRIED_LOOK = 2.0


class MachinesLeft(ElasticdError):
    """Machines could not be given back, or it is not known."""


class GivingBack:
    """Gives back what the controller at `admin` has rented. Seconds everywhere."""

    def __init__(
        self, admin: AdminClient, state_dir: Path, say: Tell, hurry: asyncio.Event
    ) -> None:
        self._state_dir = state_dir
        self._say = say
        self._hurry = hurry
        self._descent = Descent(_Acting(admin), "elasticd run")
        self._deaths = 0

    def controller_died(self) -> None:
        """Once for each of its ends meanwhile."""
        self._deaths += 1

    async def run(
        self,
        refuses: Callable[[], bool],
        patience: float = PATIENCE,
        standstill: float = _STANDSTILL,
    ) -> None:
        """Returns when nothing is left. Raises `MachinesLeft` when the controller does not answer:
        for `patience` in all, when it always dies or `refuses`, or when there is a hurry; when it
        only observes; and when it answers, but nothing ends for `standstill`."""
        now, told = asyncio.get_running_loop().time, ""
        heard = moved = now()
        before = frozenset[str]()
        while True:
            try:
                left = await self._look()
                trouble, heard = "", now()
            except OnlyObserves as idle:
                raise MachinesLeft(await self._told(str(idle))) from idle
            except ElasticdError as silent:
                trouble = str(silent)
                left = f"the controller to answer: {trouble}"
            if left is None:
                self._say(self._nothing_left())
                return
            if (there := frozenset(self._descent.left)) != before:
                before, moved = there, now()
            why = self._why_to_give_up(refuses, trouble, now() - heard >= patience)
            why = why or self._why_nothing_ends(trouble, now() - moved, standstill)
            if why:
                raise MachinesLeft(await self._told(why))
            if gist(left) != gist(told):
                self._say(f"waiting for {left}")
            told = left
            # In a hurry there is nothing more to hear, and as long as there is hope it goes on.
            await (asyncio.sleep(_POLL) if self._hurry.is_set() else self._pause())

    def _nothing_left(self) -> str:
        foreign = self._descent.told_foreign()
        return f"no machine of ours is left; {foreign}" if foreign else "no machine is left"

    def _why_to_give_up(self, refuses: Callable[[], bool], trouble: str, too_long: bool) -> str:
        if refuses():
            return "the controller refuses to run"
        if self._deaths >= _MOST_DEATHS:
            return f"the controller died {self._deaths} times"
        return trouble if trouble and (self._hurry.is_set() or too_long) else ""

    def _why_nothing_ends(self, trouble: str, seconds: float, standstill: float) -> str:
        """Of a controller that answers."""
        if trouble:
            return ""
        left = ", ".join(self._descent.left.values())
        if self._descent.hopeless:
            return f"the pools of these machines are not configured any more: {left}"
        limit = min(standstill, _HURRIED_STANDSTILL) if self._hurry.is_set() else standstill
        return (
            f"nothing has ended for {seconds:.0f} s, still there: {left}"
            if seconds >= limit
            else ""
        )

    async def _pause(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_POLL):
                await self._hurry.wait()

    async def _look(self) -> str | None:
        """One look, which a hurry cuts short."""
        look = asyncio.ensure_future(in_thread(self._descent.look, _LOOK, "giving back"))
        hurried = asyncio.ensure_future(self._hurry.wait())
        try:
            await asyncio.wait({look, hurried}, return_when=asyncio.FIRST_COMPLETED)
            async with asyncio.timeout(None if look.done() else _HURRIED_LOOK):
                return await look
        except TimeoutError as late:
            raise NotReachable("the controller takes connections and does not answer") from late
        finally:
            look.cancel()
            hurried.cancel()

    async def _told(self, why: str) -> str:
        left, seen = self._descent.left, self._descent.seen
        still = [machine for key, machine in seen.items() if key in left] or seen.values()
        machines = _named(still) or ", ".join(left.values()) or await self._last_known()
        return (
            f"not every machine could be given back: {why}\n"
            f"maybe still running, and paid for: {machines}\n"
            "see to what the controller's log says, start `elasticd run` again, and then run "
            "`elasticd down`; or end them at the provider"
        )

    async def _last_known(self) -> str:
        """What the ledger says: the controller may never have answered in this life."""
        from elasticd.cli.last_known import last_known

        try:
            known = await in_thread(lambda: last_known(self._state_dir), _LOOK, "last known")
        except (ElasticdError, TimeoutError) as nothing:
            return f"not known: {nothing or 'the ledger cannot be read in time'}"
        return _named(living(known.status).values()) or "none that the ledger knows of"


class _Acting:
    """A daemon of which more is expected only as long as it acts on anything."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin

    def status(self) -> dict[str, Any]:
        """Raises `OnlyObserves`, besides what the client raises."""
        status = self._admin.status()
        must_act(status)
        return status

    def down(self, by: str) -> dict[str, Any]:
        """Asks it to give everything back."""
        return self._admin.down(by)


def _named(nodes: Iterable[Mapping[str, Any]]) -> str:
    return ", ".join(f"{node['id']} (pool {node['pool']})" for node in nodes)
