"""One life on real parts: real Ray, real vLLM, real processes, killed with SIGKILL.

The scenes build on each other, so it is one test: a fleet that has survived one death must survive
the next. Figures go to `build/reports/life.json`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from elasticd.demo.load import Load, first_token
from elasticd.demo.stack import Stack, Status
from elasticd.ops.process_mark import gone
from tests.e2e.stack_config import ROOT, take_own_ports

pytestmark = pytest.mark.e2e

AGAIN = 120.0
"""Seconds in which the wanted state must be there again after any one process was killed."""
HEAD_AWAY = 90.0


def write_config(folder: Path) -> Path:
    """The embedded default with ports and a state directory of its own."""
    config = yaml.safe_load((ROOT / "config" / "local.yaml").read_text(encoding="utf-8"))
    config["cluster"] = "life"
    config["state_dir"] = str(folder / "state")
    config["on_stop"] = "release"
    take_own_ports(config)
    # The scenes want two replicas to stay; scale-down has its own tests and the demo.
    config["models"][0]["scaling"]["downscale_delay"] = "1h"
    path = folder / "life.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return path


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    made = Stack(write_config(tmp_path), tmp_path / "run.log")
    yield made
    made.kill_everything()


def ready_ids(status: Status) -> list[str]:
    return sorted(r["id"] for r in status["replicas"] if r["phase"] == "ready")


def ready_nodes(status: Status) -> list[str]:
    return [n["id"] for n in status["nodes"] if n["phase"] == "ready"]


class Life:
    """The scenes, each with what it promises."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.figures: dict[str, Any] = {}

    def whole(self, count: int) -> Callable[[Status], bool]:
        """So many replicas ready, on ready nodes, and exactly their engines run: no copy."""

        def holds(status: Status) -> bool:
            ready = ready_ids(status)
            return (
                len(ready) == count
                and status["cluster_complete"]
                and sorted(self.stack.engines()) == ready
                and status["models"][0]["starting"] == status["models"][0]["pending"] == 0
            )

        return holds

    async def serves(self) -> None:
        began = time.monotonic()
        self.stack.start()
        await self.stack.until("first replica", lambda s: len(ready_ids(s)) == 1, 240.0)
        await first_token(self.stack.url, "tiny", 60.0)
        self.figures["start_to_first_token"] = time.monotonic() - began

    async def grows_with_the_queue(self) -> None:
        began = time.monotonic()
        async with Load(self.stack.url, "tiny", clients=12) as load:
            await self.stack.until(
                "a second replica wanted", lambda s: s["models"][0]["wanted"] == 2, 60.0
            )
        # Without the load, or two engines would share two cores with a third that starts.
        await self.stack.until("second node and replica", self.whole(2), 180.0)
        self.figures["queue_to_two_replicas"] = time.monotonic() - began
        assert load.account.lost == load.account.refused == 0
        assert len(ready_nodes(await self._status())) == 2

    async def survives(self, name: str) -> None:
        """One of the four processes of the control plane is killed; every replica stays."""
        before = await self._status()
        pid = self.stack.child(name)

        def again(status: Status) -> bool:
            return self.stack.child(name) != pid and self.whole(2)(status)

        await self._kill(name, pid, again)
        after = await self._status()
        assert ready_ids(after) == ready_ids(before), "nothing that worked was replaced"
        assert ready_nodes(after) == ready_nodes(before)

    async def survives_part_of_a_replica(self, name: str, find: Callable[[Status], int]) -> None:
        """A process that a replica is made of is killed: the replica is replaced, on its node."""
        before = await self._status()
        victim = ready_ids(before)[0]

        def again(status: Status) -> bool:
            return victim not in ready_ids(status) and self.whole(2)(status)

        await self._kill(name, find(before), again)
        assert ready_nodes(await self._status()) == ready_nodes(before)

    async def _kill(self, name: str, pid: int, again: Callable[[Status], bool]) -> None:
        async with self._light_load() as load:
            os.kill(pid, signal.SIGKILL)
            async with asyncio.timeout(10):
                await gone(pid)
            seconds = await self.stack.until(f"{name} killed", again, AGAIN)
            await first_token(self.stack.url, "tiny", AGAIN - seconds)
        self.figures[f"kill_{name}"] = {
            "whole_again": seconds,
            "answered": load.account.answered,
            "lost": load.account.lost,
            "refused": load.account.refused,
        }

    def _light_load(self) -> Load:
        return Load(self.stack.url, "tiny", clients=2, max_tokens=60, pause=1.0)

    async def _status(self) -> Status:
        status = await self.stack.status()
        assert status is not None
        return status

    async def survives_a_node(self) -> None:
        victim = ready_nodes(await self._status())[0]
        async with self._light_load() as load:
            await self.stack.preempt(victim)
            seen = await self.stack.until("loss seen", lambda s: victim not in ready_nodes(s), 60.0)
            seconds = seen + await self.stack.until("node killed", self.whole(2), AGAIN - seen)
        self.figures["kill_node"] = {"whole_again": seconds, "answered": load.account.answered}

    async def head_may_be_away(self) -> None:
        before = await self._status()
        os.kill(self.stack.supervisor, signal.SIGSTOP)  # or it would bring the head back at once
        os.kill(self.stack.child("head"), signal.SIGKILL)
        async with self._light_load() as load:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HEAD_AWAY):
                    await load.trouble.wait()
        assert not load.trouble.is_set(), load.account.stories
        os.kill(self.stack.supervisor, signal.SIGCONT)
        seconds = await self.stack.until("head taken back", self.whole(2), AGAIN)
        after = await self._status()
        assert ready_ids(after) == ready_ids(before), "nothing that worked was replaced"
        assert ready_nodes(after) == ready_nodes(before)
        self.figures["head_away"] = {"answered": load.account.answered, "whole_again": seconds}

    async def stops_clean(self) -> None:
        began = time.monotonic()
        assert await self.stack.stop() == 0
        self.figures["stop"] = time.monotonic() - began
        assert self.stack.processes() == []
        assert list(self.stack.state_dir.glob("pools/*/machines/*")) == []


async def test_a_fleet_grows_survives_every_death_and_leaves_nothing(stack: Stack) -> None:
    life = Life(stack)
    await life.serves()
    await life.grows_with_the_queue()
    await life.survives_a_node()
    await life.survives("controller")
    await life.survives("gateway")
    await life.survives("agent")
    engines = stack.engines
    await life.survives_part_of_a_replica("engine", lambda s: engines()[ready_ids(s)[0]][0])
    await life.survives_part_of_a_replica("actor", lambda s: stack.actor(s, ready_ids(s)[0]))
    await life.head_may_be_away()
    await life.stops_clean()
    report = ROOT / "build" / "reports" / "life.json"
    report.parent.mkdir(parents=True, exist_ok=True)
    report.write_text(json.dumps(life.figures, indent=1) + "\n", encoding="utf-8")
