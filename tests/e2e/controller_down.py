"""The controller is killed and kept down under load, and everything else goes on: real parts.

    python -m tests.e2e.controller_down [--seconds 300]

Meanwhile the gateway is killed (it comes back from its last table), in the long form the agent too,
and a node. Then the controller is let back: what lives is the same as before, and one machine alone
is rented, for the node that was lost. Writes `build/reports/controller_down.json` and exits
non-zero where a promise was not kept.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from elasticd.demo.load import first_token
from elasticd.demo.stack import Stack, Status
from elasticd.ops.process_mark import gone
from tests.e2e.living import machine_init, node_dirs
from tests.e2e.stack_config import ROOT, take_own_ports
from tests.e2e.steady_load import End, Request, SteadyLoad
from tests.e2e.units import Units

REPORT = ROOT / "build" / "reports" / "controller_down.json"
SHORT, LONG = 45.0, 120.0
"""Seconds; from `LONG` on the agent is killed as well."""
_MODEL, _POOL = "tiny", "here"
_START, _AGAIN = 400.0, 240.0
_TOKENS = 80


class Broken(AssertionError):
    """A promise was not kept; the message says which."""


def write_config(folder: Path) -> Path:
    """The embedded default with two replicas, with ports and a state directory of its own."""
    config = yaml.safe_load((ROOT / "config" / "local.yaml").read_text(encoding="utf-8"))
    config["cluster"] = "down"
    config["state_dir"] = str(folder / "state")
    take_own_ports(config)
    config["models"][0]["scaling"] |= {"min_replicas": 2, "max_replicas": 2}
    path = folder / "down.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return path


class Scene:
    """One stack on single processes, and what becomes of it; `figures` are the report."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self.stack = Stack(write_config(folder), folder / "all.log")
        self.stack.log.touch()
        self.seconds = seconds
        self._steps: dict[str, float] = {}
        self.figures: dict[str, Any] = {"seconds": seconds, "after_the_controller": self._steps}
        self._pool_dir = self.stack.state_dir / "pools" / _POOL

    async def play(self) -> None:
        """Raises `Broken` for the product, `TooLate` where it never came so far."""
        async with Units(self.stack.settings, self.stack.log) as units:
            self._units = units
            self.figures["start"] = await self.stack.until("two replicas", self._whole, _START)
            await first_token(self.stack.url, _MODEL, _AGAIN)
            load = SteadyLoad(self.stack.url, _MODEL, streaming=2, plain=1, tokens=_TOKENS)
            async with load:
                await self._under(load)
                await load.finish()
            self._judge(load)
            await self._give_back()
        self._expect(self.stack.processes() == [], f"left over: {self.stack.processes()}")

    async def _under(self, load: SteadyLoad) -> None:
        await _until(lambda: len(load.ended(End.ANSWERED)) >= 4, "answers", _AGAIN)
        before = await self._status()
        engines = self.stack.engines()
        await self._units["controller"].kill_and_keep_down()
        self._down_at = time.monotonic()
        await self._kill_gateway(load)
        if self.seconds >= LONG:
            await self._kill_agent(load)
        await self._kill_node(load, before)
        await self._rest_of(1.0)
        self.figures["answered_while_down"] = load.answered_since(self._down_at)
        lives, running = self._units["controller"].lives, self._units["controller"].pid
        self._expect((lives, running) == (1, 0), "the controller was not down all the time")
        self._back_at = time.monotonic()
        self._units["controller"].start()
        self.figures["whole_again"] = await self.stack.until(
            "two replicas again", self._whole_without_victim, _AGAIN
        )
        self._compare(before, await self._status(), engines)

    async def _kill_gateway(self, load: SteadyLoad) -> None:
        await self._rest_of(0.2)
        began = time.monotonic()
        await self._units["gateway"].kill()
        self._gateway_killed = time.monotonic()
        await _until(lambda: load.answered_since(self._gateway_killed) >= 2, "answers", _AGAIN)
        self.figures["gateway_back"] = time.monotonic() - began
        self._expect(self._units["gateway"].lives == 2, "the gateway has another life")

    async def _kill_agent(self, load: SteadyLoad) -> None:
        await self._rest_of(0.4)
        await self._units["agent"].kill()
        moment = time.monotonic()
        await _until(lambda: load.answered_since(moment) >= 4, "answers without an agent", _AGAIN)
        await _until(lambda: self._units["agent"].lives == 2, "the agent's next life", 30.0)

    async def _kill_node(self, load: SteadyLoad, before: Status) -> None:
        """In a moment in which it streams: what has not begun is what must not be lost."""
        await self._rest_of(0.6)
        nodes = {r["id"]: str(r["node_id"]) for r in before["replicas"] if r["phase"] == "ready"}
        await _until(lambda: any(load.streaming_on(r) for r in nodes), "a stream", _AGAIN)
        self._victim = next(r for r in nodes if load.streaming_on(r))
        init = machine_init(self._pool_dir, nodes[self._victim])
        if init is None:
            raise Broken(f"there is no machine of {nodes[self._victim]}")
        self.figures["streams_on_the_killed_node"] = load.streaming_on(self._victim)
        os.kill(init, signal.SIGKILL)
        async with asyncio.timeout(10.0):
            await gone(init)
        moment = time.monotonic()
        await _until(lambda: load.answered_since(moment) >= 3, "answers by the other one", _AGAIN)
        self.figures["node_lost_answers_again"] = time.monotonic() - moment

    def _compare(self, before: Status, after: Status, engines: dict[str, list[int]]) -> None:
        """What lives is the same, to the process; one machine was rented for the lost one."""
        survivors = set(_ready(before)) - {self._victim}
        self._expect(survivors <= set(_ready(after)), f"{survivors} did not stay: {_ready(after)}")
        now = self.stack.engines()
        for replica in survivors:
            self._expect(now[replica] == engines[replica], f"{replica} runs in other processes")
        self.figures["machines_rented"] = len(node_dirs(self._pool_dir))
        self._expect(self.figures["machines_rented"] == 3, "three machines in all")
        self.figures["replicas_same"] = len(survivors)

    def _judge(self, load: SteadyLoad) -> None:
        counts = {end.value: len(load.ended(end)) for end in End}
        self.figures |= {"requests": len(load.requests), **counts}
        by_gateway = [r for r in load.ended(End.CUT) if self._by_the_gateway(r)]
        self.figures["cut_by_the_gateways_own_end"] = len(by_gateway)
        bad = [*load.ended(End.FAILED), *(r for r in load.ended(End.CUT) if r not in by_gateway)]
        self._expect(not bad, f"failed: {[(r.end, r.stream, r.begun, r.story) for r in bad]}")
        told = load.ended(End.TOLD)
        others = [r for r in told if r.replica != self._victim or not r.begun]
        self._expect(not others, f"streams broken for no reason: {others}")
        most = self.figures["streams_on_the_killed_node"] + 1  # one may begin in that moment
        self._expect(len(told) <= most, f"{len(told)} streams were told, {most} had begun there")

    def _by_the_gateway(self, request: Request) -> bool:
        """Whether it was under way as the gateway was killed: its connection died with it."""
        return request.asked_at <= self._gateway_killed <= request.ended_at + 0.5

    async def _give_back(self) -> None:
        command = [sys.executable, "-m", "elasticd.cli", "down", "--yes", "--json"]
        ended = await asyncio.to_thread(
            subprocess.run,
            [*command, "-c", str(self.stack.config)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_AGAIN,
            check=False,
        )
        self._expect(ended.returncode == 0, f"`down` failed: {ended.stderr}")
        left = list(self._pool_dir.glob("machines/*"))
        self._expect(left == [], f"machines left: {left}")

    async def _status(self) -> Status:
        status = await self.stack.status()
        if status is None:
            raise Broken("the controller does not answer")
        return status

    async def _rest_of(self, share: float) -> None:
        """Until that share of the time without a controller is over: the time is the subject."""
        await asyncio.sleep(max(0.0, self._down_at + share * self.seconds - time.monotonic()))

    def _whole(self, status: Status) -> bool:
        ready = _ready(status)
        nodes = [n["phase"] for n in status["nodes"] if n["phase"] != "gone"]
        whole = len(ready) == 2 and nodes == ["ready", "ready"] and status["cluster_complete"]
        return whole and sorted(self.stack.engines()) == ready

    def _whole_without_victim(self, status: Status) -> bool:
        """Notes on the way when each step towards it was first seen."""
        phases = [n["phase"] for n in status["nodes"]]
        steps = {
            "controller_answers": True,
            "loss_seen": phases.count("ready") == 1 or "gone" in phases,
            "rented": "booting" in phases or (phases.count("ready") == 2 and "gone" in phases),
            "joined": phases.count("ready") == 2 and "gone" in phases,
        }
        for step, seen in steps.items():
            if seen:
                self._steps.setdefault(step, round(time.monotonic() - self._back_at, 1))
        return self._whole(status) and self._victim not in _ready(status)

    def _expect(self, holds: bool, otherwise: str) -> None:
        if not holds:
            raise Broken(otherwise)


def _ready(status: Status) -> list[str]:
    return sorted(str(r["id"]) for r in status["replicas"] if r["phase"] == "ready")


async def _until(holds: Any, what: str, limit: float) -> None:
    deadline = time.monotonic() + limit
    while not holds():
        if time.monotonic() > deadline:
            raise Broken(f"{what}: not within {limit:g} s")
        await asyncio.sleep(0.02)


async def run(seconds: float) -> dict[str, Any]:
    """The figures, which are also written as a report. Raises `Broken` or `TooLate`."""
    folder = Path(tempfile.mkdtemp(prefix="ed-", dir="/tmp"))
    scene = Scene(folder, seconds)
    try:
        await scene.play()
    finally:
        scene.stack.kill_everything()
        REPORT.parent.mkdir(parents=True, exist_ok=True)
        REPORT.write_text(json.dumps(scene.figures, indent=1) + "\n", encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
    return scene.figures


def main(argv: Sequence[str] | None = None) -> int:
    """Exit 0 where every promise was kept."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.controller_down")
    parser.add_argument("--seconds", type=float, default=300.0)
    options = parser.parse_args(argv)
    try:
        told = asyncio.run(run(options.seconds))
    except Broken as broken:
        print(f"controller down: NOT kept: {broken}")
        return 1
    print(
        f"controller down for {told['seconds']:g} s: {told['failed']} of {told['requests']} "
        f"requests failed, {told['told']} streams of the lost node told so, "
        f"{told['cut_by_the_gateways_own_end']} connections cut by the gateway's own end, "
        f"{told['machines_rented'] - 2} machine rented, whole again in {told['whole_again']:.1f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
