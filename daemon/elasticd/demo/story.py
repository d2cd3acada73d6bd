"""`make demo`: one life of a fleet on this machine, told as it happens, with measured figures.

Serve → a queue brings a second node and replica → a node is killed under load and replaced → the
load goes and so does the second node → everything is given back. Every figure is measured here;
the same figures go to `build/reports/demo.json`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from elasticd.demo.load import Load, first_token
from elasticd.demo.stack import Stack, Status, TooLate
from elasticd.errors import ElasticdError

_PATIENCE = 300.0


def main(argv: Sequence[str] | None = None) -> int:
    """Exit 0 when everything that is promised was seen, 1 when something was not."""
    parser = argparse.ArgumentParser(prog="python -m elasticd.demo.story")
    parser.add_argument("-c", "--config", type=Path, default=Path("config/local.yaml"))
    parser.add_argument("--report", type=Path, default=Path("build/reports/demo.json"))
    options = parser.parse_args(argv)
    options.report.parent.mkdir(parents=True, exist_ok=True)
    console = Console()
    try:
        stack = Stack(options.config, options.report.with_name("demo.log"))
        return asyncio.run(Story(stack, console).tell(options.report))
    except (TooLate, ElasticdError) as bad:
        console.print(f"[red]demo stopped:[/] {bad}", highlight=False)
        return 1


class Story:
    """One telling. `figures` holds everything measured, seconds unless named otherwise."""

    def __init__(self, stack: Stack, console: Console) -> None:
        self._stack = stack
        self._console = console
        self._model = stack.settings.settings.models[0].name
        self._began = time.monotonic()
        self.figures: dict[str, Any] = {}

    async def tell(self, report: Path) -> int:
        """Plays all scenes, prints and writes the report."""
        self._say("starting elasticd (local provider, Ray, vLLM)")
        if await self._stack.status() is not None:
            raise ElasticdError("an elasticd runs with this configuration already; stop it first")
        self._stack.log.unlink(missing_ok=True)
        self._stack.start()
        try:
            await self._serve()
            await self._grow_and_lose()
            await self._shrink()
            await self._end()
        except BaseException:
            self._stack.kill_everything()
            raise
        self._report(report)
        return 0 if self.figures["processes_left"] == 0 else 1

    async def _serve(self) -> None:
        await self._until("first replica ready", lambda s: _ready(s) >= 1)
        await first_token(self._stack.url, self._model, _PATIENCE)
        self.figures["start_to_first_token"] = time.monotonic() - self._began
        self._say(f"serving: first token {self.figures['start_to_first_token']:.1f} s after start")

    async def _grow_and_lose(self) -> None:
        async with Load(self._stack.url, self._model, clients=12):
            self._say("load: 12 streaming clients on 1 replica of 8 slots, so requests queue")
            began = time.monotonic()
            await self._until("queue seen", lambda s: (_model(s)["queued"] or 0) > 0)
            queued = time.monotonic()
            await self._until("second replica wanted", lambda s: (_model(s)["wanted"] or 0) >= 2)
            self.figures["queue_to_decision"] = time.monotonic() - queued
        self._say("on a small machine the next minutes are slow: all engines share its cores")
        # Lighter now: engines that decode and an engine that loads share this machine's cores.
        async with Load(self._stack.url, self._model, clients=6, pause=1.5) as load:
            await self._until("second node ready", lambda s: len(_nodes(s, "ready")) >= 2)
            self.figures["queue_to_second_node"] = time.monotonic() - queued
            self._say(f"second node: {self.figures['queue_to_second_node']:.1f} s after the queue")
            await self._until("second replica ready", lambda s: _ready(s) >= 2)
            self.figures["load_to_second_replica"] = time.monotonic() - began
            self._say(f"second replica: {self.figures['load_to_second_replica']:.1f} s after load")
            await self._kill_a_node(load)
            account = load.account
        self.figures |= {
            "answered": account.answered,
            "lost_streams": account.lost,
            "refused": account.refused,
            "streamed_chunks": account.tokens,
            "median_time_to_first_token": account.median_first_token(),
        }

    async def _kill_a_node(self, load: Load) -> None:
        status = await self._stack.status()
        assert status is not None
        victim = _nodes(status, "ready")[0]
        lost, answered, began = load.account.lost, load.account.answered, time.monotonic()
        await self._stack.preempt(victim)
        self._say(f"killed node {victim} under load, without notice")
        seen = await self._until(
            "loss seen", lambda s: victim not in _nodes(s, "ready"), limit=60.0
        )
        await self._until(
            "full strength again", lambda s: _ready(s) >= 2 and victim not in _nodes(s, "ready")
        )
        self.figures["kill_to_loss_seen"] = seen
        self.figures["kill_to_full_strength"] = time.monotonic() - began
        self.figures["streams_cut_by_the_kill"] = load.account.lost - lost
        self.figures["answered_meanwhile"] = load.account.answered - answered
        self._say(
            f"replaced: full strength {self.figures['kill_to_full_strength']:.1f} s after the "
            f"kill; {self.figures['answered_meanwhile']} requests answered meanwhile"
        )

    async def _shrink(self) -> None:
        self._say("load gone")
        began = time.monotonic()
        await self._until("one replica", lambda s: _ready(s) == 1 and _model(s)["wanted"] == 1)
        self.figures["idle_to_one_replica"] = time.monotonic() - began
        await self._until("one node", lambda s: len(_living(s)) == 1)
        self.figures["idle_to_one_node"] = time.monotonic() - began
        self._say(f"scaled down: one node {self.figures['idle_to_one_node']:.1f} s after the load")

    async def _end(self) -> None:
        began = time.monotonic()
        await self._stack.stop()
        self.figures["stop"] = time.monotonic() - began
        left = self._stack.processes()
        self.figures["processes_left"] = len(left)
        self._say(f"stopped in {self.figures['stop']:.1f} s, {len(left)} processes left")

    async def _until(self, what: str, holds: Any, limit: float = _PATIENCE) -> float:
        with self._console.status(f"waiting: {what}"):
            return await self._stack.until(what, holds, limit)

    def _say(self, text: str) -> None:
        self._console.print(f"[dim]{time.monotonic() - self._began:6.1f} s[/]  {text}")

    def _report(self, path: Path) -> None:
        table = Table("measured", "value", title="elasticd demo")
        for name, value in self.figures.items():
            shown = f"{value:.2f} s" if isinstance(value, float) else str(value)
            table.add_row(name.replace("_", " "), shown)
        self._console.print(table)
        path.write_text(json.dumps(self.figures, indent=1) + "\n", encoding="utf-8")
        self._console.print(f"report: {path}")


def _model(status: Status) -> dict[str, Any]:
    found: dict[str, Any] = status["models"][0]
    return found


def _ready(status: Status) -> int:
    return int(_model(status)["ready"])


def _nodes(status: Status, phase: str) -> list[str]:
    return [n["id"] for n in status["nodes"] if n["phase"] == phase]


def _living(status: Status) -> list[str]:
    return [n["id"] for n in status["nodes"] if n["phase"] != "gone"]


if __name__ == "__main__":
    sys.exit(main())
