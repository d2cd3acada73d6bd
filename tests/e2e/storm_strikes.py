"""How replicas are hurt in a storm: with notice and without, two at once, one after the other."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
from enum import Enum
from pathlib import Path
from typing import Any

from elasticd.demo.stack import Stack
from tests.e2e.living import machine_init
from tests.e2e.storm_clients import Told


class Kind(Enum):
    """One strike."""

    MACHINE = "a machine"
    ENGINE = "an engine"
    SUCCESSOR = "a machine, then the engine that goes on with its streams"
    TWO = "two machines at once"
    NOTICE_5 = "a machine with 5 s of notice"
    NOTICE_30 = "a machine with 30 s of notice"
    NOTICE_120 = "a machine with 120 s of notice"

    @property
    def notice(self) -> float | None:
        """Seconds; `None`: none."""
        return {"NOTICE_5": 5.0, "NOTICE_30": 30.0, "NOTICE_120": 120.0}.get(self.name)


PLAIN = (
    *(Kind.SUCCESSOR, Kind.NOTICE_120, Kind.TWO, Kind.SUCCESSOR, Kind.NOTICE_30, Kind.SUCCESSOR),
    *(Kind.NOTICE_5, Kind.ENGINE, Kind.SUCCESSOR, Kind.MACHINE, Kind.SUCCESSOR),
)
"""Seventeen kills."""
PARSED = (
    *(Kind.SUCCESSOR, Kind.NOTICE_120, Kind.NOTICE_5, Kind.TWO, Kind.NOTICE_30),
    *(Kind.MACHINE, Kind.SUCCESSOR),
)
"""Ten."""
SHORT = (Kind.SUCCESSOR, Kind.TWO, Kind.NOTICE_5)
"""Five."""


class Trigger:
    """Strikes once one of the answers has grown so far; the replica to strike is its own.

    `in_call`: not before one is in the middle of a tool call.
    """

    def __init__(self, choice: random.Random, in_call: bool = False) -> None:
        self._tokens = choice.randrange(3, 40)
        self._in_call = in_call
        self.struck: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def heard(self, told: Told) -> None:
        long = told.in_call if self._in_call else len(told.ids) >= self._tokens
        if long and told.replica and not told.done and not self.struck.done():
            self.struck.set_result(told.replica)


class Successor:
    """The replica that goes on with an answer, told a few tokens after the seam."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self.found: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def heard(self, told: Told) -> None:
        if self.found.done() or not told.seams or told.done:
            return
        if len(told.ids) > told.seams[-1].ids + 2 and (who := self._goes_on(told.request_id)):
            self.found.set_result(who)

    def _goes_on(self, request_id: str) -> str:
        events = [e for e in gateway_events(self._log) if e.get("request_id") == request_id]
        return next((e["replica"] for e in events[::-1] if e["event"] == "stream goes on"), "")


def gateway_events(log: Path) -> list[dict[str, str]]:
    """What the gateway has logged, oldest first."""
    found = []
    for line in log.read_text(errors="replace").splitlines():
        with contextlib.suppress(ValueError):
            found.append(json.loads(line))
    return [event for event in found if isinstance(event, dict) and "event" in event]


async def first_of(one: asyncio.Future[Any], other: asyncio.Future[Any]) -> None:
    """Waits until either is there."""
    await asyncio.wait([one, other], return_when=asyncio.FIRST_COMPLETED)


def kill_engine(stack: Stack, replica_id: str) -> None:
    """SIGKILL, as by a fault of its own."""
    for pid in stack.engines().get(replica_id, []):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def kill_machine(stack: Stack, node_id: str) -> None:
    """SIGKILL to all that runs there, as when a spot instance is gone."""
    [pool] = (stack.state_dir / "pools").iterdir()
    if (init := machine_init(pool, node_id)) is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(init, signal.SIGKILL)


async def node_of(stack: Stack) -> dict[str, str]:
    """The node of each replica."""
    status = await stack.status()
    assert status is not None
    return {r["id"]: r["node_id"] for r in status["replicas"]}
