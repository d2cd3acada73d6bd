"""The replicas one agent looks after: orders in, reports out.

One task per replica follows it from its order, or from being found alive, to its end. Reports
never wait for Ray; an actor that does not answer is `unknown`, with what was known last.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from elasticd.agent_api.messages import WAITING_FOR_ORDER, ReplicaOrder, ReplicaReport
from elasticd.ray_side.cluster import ActorGone, ActorSilent, Cluster, HeadAway
from elasticd.ray_side.names import actor_name, parse_actor_name

POLL = 1.0
RETRY = 1.0
# How long a stopped replica stays in the reports, so that nobody misses why it ended.
KEEP_STOPPED = 600.0
# What an actor may take beyond the grace of a stop before it is killed.
STOP_MARGIN = 10.0

Spawn = Callable[[Coroutine[Any, Any, None], str], None]


class OrderRefused(Exception):
    """The order contradicts what is known, and always will."""


@dataclass
class _Record:
    """One start of one replica. `asked`: its actor was asked at least once since it is here.

    `ordered`: its actor has, or will get, the order to start. Of an actor that was found alive
    this is not known until it speaks of an engine: the agent that made it may have died between.
    """

    report: ReplicaReport
    answered_at: float
    placed: bool = False
    asked: bool = False
    ordered: bool = True
    ending: bool = False
    kill_at: float | None = None
    stopped_at: float | None = None
    poke: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def name(self) -> str:
        return actor_name(self.report.replica_id, self.report.incarnation)

    @property
    def over(self) -> bool:
        return self.stopped_at is not None


class Replicas:
    """Owns what the agent knows of replicas. `changed` is called after each piece of news."""

    def __init__(self, cluster: Cluster, spawn: Spawn, changed: Callable[[], None]) -> None:
        self._cluster = cluster
        self._spawn = spawn
        self._changed = changed
        self._records: dict[str, _Record] = {}

    @property
    def settled(self) -> bool:
        """Whether every replica that was found alive has been asked."""
        return all(record.asked or record.over for record in self._records.values())

    def reports(self) -> tuple[ReplicaReport, ...]:
        """All replicas, those that stopped in the last minutes too."""
        now = time.monotonic()
        self._forget(now)
        return tuple(
            replace(
                record.report,
                age=now - record.answered_at,
                unordered=not (record.ordered or record.over),
            )
            for _, record in sorted(self._records.items())
        )

    def order(self, order: ReplicaOrder) -> None:
        """Starts a replica; the same order again changes nothing. Raises `OrderRefused`."""
        old = self._records.get(order.replica_id)
        if old is not None:
            self._check_incarnation(old, order.incarnation)
            if old.report.incarnation == order.incarnation:
                self._order_again(old, order)
                return
        record = self._enter(
            ReplicaReport(
                replica_id=order.replica_id,
                incarnation=order.incarnation,
                node_id=order.node_id,
                model=order.model,
                spec_hash=order.spec_hash,
                phase="starting",
                load_phase="creating its actor",
            )
        )
        record.asked = True
        self._spawn(self._bring_up(record, order, old), f"replica {record.name}")

    def stop(self, replica_id: str, incarnation: int, grace: float) -> None:
        """Stops a replica; one that is over or not there stays so. Raises `OrderRefused`."""
        record = self._records.get(replica_id)
        if record is None:
            return
        self._check_incarnation(record, incarnation)
        if record.report.incarnation != incarnation or record.over:
            return
        kill_at = time.monotonic() + grace + STOP_MARGIN if record.placed else time.monotonic()
        record.kill_at = min(kill_at, record.kill_at or kill_at)
        if record.report.phase != "unknown":
            self._news(record, replace(record.report, phase="stopping"))
        record.ending = True
        record.poke.set()
        if record.placed:
            self._spawn(self._order_stop(record, grace), f"stop {record.name}")

    def adopt(self, names: Iterable[str]) -> None:
        """Takes in living actors that an earlier agent made; of one id only the newest."""
        for name in names:
            parsed = parse_actor_name(name)
            if parsed is None:
                continue
            replica_id, incarnation = parsed
            known = self._records.get(replica_id)
            if known is not None and known.report.incarnation == incarnation:
                continue
            if known is not None and known.report.incarnation > incarnation:
                self._spawn(self._kill_until_gone(name), f"fence {name}")
                continue
            record = self._enter(_nameless(replica_id, incarnation))
            record.placed, record.ordered = True, False
            self._spawn(self._follow(record), f"replica {name}")
            if known is not None and not known.over:
                self._spawn(self._kill_until_gone(known.name), f"fence {known.name}")

    def _order_again(self, record: _Record, order: ReplicaOrder) -> None:
        """To an actor that has its order already, it changes nothing."""
        if record.ordered or record.ending or record.over:
            return
        record.ordered = True
        self._spawn(self._order_start(record, order), f"order {record.name}")

    @staticmethod
    def _check_incarnation(record: _Record, incarnation: int) -> None:
        if incarnation < record.report.incarnation:
            raise OrderRefused(
                f"replica {record.report.replica_id}: incarnation {incarnation} is over, "
                f"{record.report.incarnation} is known"
            )

    def _enter(self, report: ReplicaReport) -> _Record:
        record = _Record(report, time.monotonic())
        self._records[report.replica_id] = record
        self._changed()
        return record

    def _is_current(self, record: _Record) -> bool:
        return self._records.get(record.report.replica_id) is record

    def _forget(self, now: float) -> None:
        for replica_id, record in list(self._records.items()):
            if record.stopped_at is None or record.report.holding:
                continue
            if now - record.stopped_at > KEEP_STOPPED:
                del self._records[replica_id]

    async def _bring_up(self, record: _Record, order: ReplicaOrder, old: _Record | None) -> None:
        """From the order to the actor's first answer, within the order's start time."""
        if old is not None and not old.over:
            old.ending = True
            await self._kill_until_gone(old.name)
        coming = asyncio.create_task(self._create_and_start(record, order))
        poked = asyncio.create_task(record.poke.wait())
        try:
            await asyncio.wait(
                (coming, poked), timeout=order.start_timeout, return_when="FIRST_COMPLETED"
            )
            if not coming.done():
                await self._kill_until_gone(record.name)
                why = "" if record.ending else _never_placed(record, order)
                self._over(record, why)
                return
            coming.result()
        except ActorGone as dead:
            self._over(record, "" if record.ending else str(dead))
            return
        finally:
            for task in (coming, poked):
                task.cancel()
            await asyncio.gather(coming, poked, return_exceptions=True)
        record.placed = True
        await self._follow(record)

    async def _create_and_start(self, record: _Record, order: ReplicaOrder) -> None:
        while True:
            try:
                await self._cluster.create(order)
                self._news(record, replace(record.report, load_phase="waiting for its GPUs"))
                await self._cluster.start(order)
            except (HeadAway, ActorSilent) as away:
                self._news(record, replace(record.report, load_phase=f"asking again: {away}"))
                await asyncio.sleep(RETRY)
            else:
                return

    async def _follow(self, record: _Record) -> None:
        """Asks the actor again and again until it is over, or another incarnation took its id."""
        while self._is_current(record) and (not record.over or record.report.holding):
            try:
                state = await self._cluster.state(record.name)
            except ActorSilent:
                self._is_silent(record)
            except ActorGone as dead:
                self._is_gone(record, str(dead))
            else:
                self._answered(record, ReplicaReport.from_json(state))
            record.asked = True
            self._changed()
            await self._end_if_due(record)
            await _pause(record.poke, POLL)

    def _is_silent(self, record: _Record) -> None:
        if not record.over:
            self._news(record, replace(record.report, phase="unknown"))

    def _is_gone(self, record: _Record, cause: str) -> None:
        if record.over:  # it has let go of the GPUs that it kept back
            self._news(record, replace(record.report, holding=()))
        else:
            self._over(record, "" if record.ending else cause)

    def _answered(self, record: _Record, report: ReplicaReport) -> None:
        record.answered_at = time.monotonic()
        record.ordered = record.ordered or report.load_phase != WAITING_FOR_ORDER
        if record.ending and report.phase in ("fetching", "starting", "ready"):
            report = replace(report, phase="stopping")
        self._news(record, report)

    async def _end_if_due(self, record: _Record) -> None:
        """Ends the actor once its engine has stopped, or if it does not manage to stop it."""
        if record.over:
            return
        if record.report.holding:
            # It ends by itself once its GPUs are free: until then Ray gives them to nobody.
            self._over(record, record.report.error)
            return
        late = record.kill_at is not None and time.monotonic() >= record.kill_at
        if record.report.phase == "stopped" or late:
            await self._kill_until_gone(record.name)
            self._over(record, record.report.error)

    async def _order_start(self, record: _Record, order: ReplicaOrder) -> None:
        while not (record.over or record.ending):
            try:
                await self._cluster.start(order)
            except ActorSilent:
                await asyncio.sleep(RETRY)
            except ActorGone:
                return  # the following task sees it, too
            else:
                return

    async def _order_stop(self, record: _Record, grace: float) -> None:
        while not record.over:
            try:
                await self._cluster.stop(record.name, grace)
            except ActorSilent:
                await asyncio.sleep(RETRY)
            except ActorGone:
                return  # the following task sees it, too
            else:
                return

    async def _kill_until_gone(self, name: str) -> None:
        while True:
            try:
                await self._cluster.kill(name)
            except HeadAway:
                await asyncio.sleep(RETRY)
            else:
                return

    def _news(self, record: _Record, report: ReplicaReport) -> None:
        record.report = report
        self._changed()

    def _over(self, record: _Record, error: str) -> None:
        record.stopped_at = time.monotonic()
        self._news(record, replace(record.report, phase="stopped", error=error, stalled_for=None))


def _nameless(replica_id: str, incarnation: int) -> ReplicaReport:
    return ReplicaReport(
        replica_id=replica_id,
        incarnation=incarnation,
        node_id="",
        model="",
        spec_hash="",
        phase="unknown",
    )


def _never_placed(record: _Record, order: ReplicaOrder) -> str:
    return (
        f"its actor was not placed within {order.start_timeout:.0f} s; last seen: "
        f"{record.report.load_phase} ({order.gpus} GPUs on node {order.node_id})"
    )


async def _pause(poke: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await poke.wait()
    poke.clear()
