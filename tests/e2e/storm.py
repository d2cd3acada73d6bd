"""Replicas are killed under streams, again and again, and no client notices: real Ray, real vLLM.

    python -m tests.e2e.storm [--kills 24] [--seed N]

First every question is answered undisturbed, twice: how often two undisturbed answers differ is
what a broken one may be measured by. Then one replica's machine or engine after the other gets
SIGKILL in the middle of streams, now and then two at once, or the one that goes on with another's
streams. Each answer must be the undisturbed one, byte for byte, with its usage. Writes
`build/reports/storm.json` and exits non-zero where a stream was lost or differs, or where too
little was hit.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from tokenizers import Tokenizer

from elasticd.demo.load import first_token
from elasticd.demo.stack import Stack, Status
from tests.e2e.stack_config import ROOT, take_own_ports
from tests.e2e.storm_clients import Again, Client, Question, Told, Trigger, questions

REPORT = ROOT / "build" / "reports" / "storm.json"
MODEL, REPLICAS = "tiny", 3
STREAMS = 16
"""Side by side at each kill."""
_START, _AGAIN = 500.0, 300.0

SHORT, LONG = 5, 24
"""Kills."""


@dataclass(frozen=True)
class Floor:
    """The least that must have been hit for the run to say anything."""

    continued: int
    inside: int
    stop: int
    twice: int


FLOORS = {SHORT: Floor(10, 3, 3, 1), LONG: Floor(60, 15, 15, 8)}


@dataclass
class Figures:
    """Of all answers after the undisturbed ones."""

    kills: int = 0
    answered: int = 0
    continued: int = 0
    inside: int = 0
    stop: int = 0
    twice: int = 0
    restarted: int = 0
    lost: list[str] = field(default_factory=list)
    differ: list[str] = field(default_factory=list)
    base_asked: int = 0
    base_differ: int = 0


class Storm:
    """The kills, on a stack that serves."""

    def __init__(self, stack: Stack, seed: int) -> None:
        self._stack = stack
        self._choice = random.Random(seed)
        self._client = Client(stack.url, MODEL)
        self._expected: dict[str, Told] = {}
        self._tokenizer: Tokenizer | None = None
        self._left: list[Question] = []
        self.figures = Figures()

    async def aclose(self) -> None:
        await self._client.aclose()

    async def undisturbed(self) -> None:
        """Every question twice, several at a time as under the storm."""
        tokenizer = next(self._stack.state_dir.glob("**/tokenizer.json"), None)
        tokenizer = tokenizer or next(Path.home().glob(".cache/elasticd/**/tokenizer.json"))
        self._tokenizer = Tokenizer.from_file(str(tokenizer))
        gate = asyncio.Semaphore(STREAMS)

        async def ask(question: Question) -> Told:
            async with gate:
                return await self._client.ask(question)

        asked = questions()
        first = await asyncio.gather(*map(ask, asked))
        second = await asyncio.gather(*map(ask, asked))
        for one, two in zip(first, second, strict=True):
            assert not one.error, one.error
            self._expected[one.question.name] = one
            self.figures.base_asked += 1
            self.figures.base_differ += one.meaning != two.meaning

    async def strike(self, number: int) -> None:
        """One kill under streams, or two, and back to three replicas."""
        await self._stack.until("three replicas serve", _serving, _AGAIN)
        trigger, again = Trigger(self._choice), Again()

        def heard(told: Told) -> None:
            trigger.heard(told)
            again.heard(told)

        asked = [self._next() for _ in range(STREAMS)]
        streams = [
            asyncio.create_task(self._client.ask(q, ids=True, heard=heard)) for q in asked[3:]
        ]
        streams += [asyncio.create_task(self._client.ask(q)) for q in asked[:3]]
        victim = await trigger.struck
        await self._kill(victim, number)
        if number % 3 == 1:
            await asyncio.wait([again.struck, *streams], return_when=asyncio.FIRST_COMPLETED)
            await self._kill(self._busiest(victim), number + 1)
        for told in await asyncio.gather(*streams):
            self._account(told)

    def _next(self) -> Question:
        if not self._left:
            self._left = questions()
            self._choice.shuffle(self._left)
        return self._left.pop()

    async def _kill(self, replica_id: str, number: int) -> None:
        """A machine as it is when a spot instance goes, or an engine as by a fault of its own."""
        self.figures.kills += 1
        engines = self._stack.engines().get(replica_id, [])
        if number % 4 == 0:
            for pid in engines:
                os.kill(pid, signal.SIGKILL)
            return
        status = await self._stack.status()
        assert status is not None
        [node_id] = [r["node_id"] for r in status["replicas"] if r["id"] == replica_id]
        await self._stack.preempt(node_id)

    def _busiest(self, beside: str) -> str:
        living = sorted(r for r in self._stack.engines() if r != beside)
        return self._choice.choice(living)

    def _account(self, told: Told) -> None:
        figures, name = self.figures, told.question.name
        if told.error:
            figures.lost.append(f"{name}: {told.error}")
            return
        figures.answered += 1
        if told.meaning != self._expected[name].meaning:
            figures.differ.append(
                f"{name} at {told.seams}: {told.meaning} / {self._expected[name].meaning}"
            )
        if told.seams:
            figures.continued += 1
            figures.stop += told.question.stop
            figures.twice += len(told.seams) > 1
            figures.inside += any(self._is_inside(told.ids[:at]) for at in told.seams if at)

    def _is_inside(self, ids: list[int]) -> bool:
        """Whether the ids end in the middle of a character."""
        assert self._tokenizer is not None
        return bool(self._tokenizer.decode(ids, skip_special_tokens=False).endswith("\ufffd"))


def _serving(status: Status) -> bool:
    ready = [r for r in status["replicas"] if r["phase"] == "ready"]
    return len(ready) == REPLICAS and bool(status["cluster_complete"])


def write_config(folder: Path) -> Path:
    """The embedded default with three replicas, each on a machine of its own."""
    config = yaml.safe_load((ROOT / "config" / "local.yaml").read_text(encoding="utf-8"))
    config["cluster"] = "storm"
    config["state_dir"] = str(folder / "state")
    config["on_stop"] = "release"
    take_own_ports(config)
    config["node_pools"][0]["max_nodes"] = REPLICAS + 2
    config["models"][0]["scaling"] |= {"min_replicas": REPLICAS, "max_replicas": REPLICAS}
    # Engines that are killed soon after their start look like a model that cannot be served.
    config["models"][0]["start_attempts"] = 1000
    path = folder / "storm.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return path


async def run(kills: int, seed: int) -> dict[str, Any]:
    """The figures; raises where a promise was not kept."""
    folder = Path(tempfile.mkdtemp(prefix="est"))
    stack = Stack(write_config(folder), folder / "run.log")
    began = time.monotonic()
    storm = Storm(stack, seed)
    try:
        stack.start()
        await stack.until("three replicas serve", _serving, _START)
        await first_token(stack.url, MODEL, _START)
        await storm.undisturbed()
        number = 0
        while storm.figures.kills < kills or _missing(storm.figures, kills):
            if number >= 2 * kills:
                break
            await storm.strike(number)
            number += 1
        log = stack.state_dir / "logs" / "gateway.log"
        told = log.read_text(errors="replace")
        storm.figures.restarted = told.count("replica failed before the first byte")
        await stack.stop()
    finally:
        await storm.aclose()
        stack.kill_everything()
        figures = {**vars(storm.figures), "seconds": round(time.monotonic() - began, 1)}
        REPORT.parent.mkdir(parents=True, exist_ok=True)
        REPORT.write_text(json.dumps({"seed": seed, **figures}, indent=2, ensure_ascii=False))
        shutil.rmtree(folder, ignore_errors=True)
    return {**figures, "missing": _missing(storm.figures, kills)}


def _missing(figures: Figures, kills: int) -> list[str]:
    floor = FLOORS[LONG if kills >= LONG else SHORT]
    wanted = vars(floor)
    return [
        f"{name} {getattr(figures, name)} of {least}"
        for name, least in wanted.items()
        if getattr(figures, name) < least
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=LONG)
    parser.add_argument("--seed", type=int, default=None)
    args = parser.parse_args()
    seed = random.randrange(2**32) if args.seed is None else args.seed
    told = asyncio.run(run(args.kills, seed))
    bad = [*told["lost"], *told["differ"], *told["missing"]]
    for line in bad:
        print(line)
    print(
        f"storm: seed {seed}, {told['seconds']:.0f} s; {told['kills']} kills, "
        f"{told['answered']} answered, {told['continued']} continued ({told['inside']} inside a "
        f"character, {told['stop']} with stop, {told['twice']} twice), {told['restarted']} "
        f"restarted; undisturbed {told['base_differ']} of {told['base_asked']} differ; "
        f"lost {len(told['lost'])}, differ {len(told['differ'])}"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
