"""The crash sweep: the controller is killed at every commit and every provider-call boundary.

    python -m tests.sweep [--seed N] [--points N] [--at-once N]

Lives without a death tell which boundaries there are; then each boundary has a life of its own, in
which the controller dies there (in some of them once more while it recovers). The seed decides the
order, the second deaths, and with `--points` the sample. Writes `build/reports/sweep.json`, and
one summary line last; exits non-zero when a promise was broken, when a kind of boundary was hit by
no death, or when there were too few deaths. About a quarter of an hour.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.sweep.nursery import nursery
from tests.sweep.playing import Stage
from tests.sweep.points import Point, points_of, sample
from tests.sweep.report import Report
from tests.sweep.scripts import SCRIPTS
from tests.sweep.story import Story

REPORT = Path(__file__).parents[2] / "build" / "reports" / "sweep.json"
AT_ONCE = 8
"""Lives side by side: each mostly waits."""


async def sweep(seed: int, count: int | None, at_once: int) -> Report:
    """All of it."""
    _end_on_signals()
    async with nursery() as controllers:
        stage = Stage(controllers)
        undisturbed = await asyncio.gather(*(stage.undisturbed(script) for script in SCRIPTS))
        return await _swept(stage, undisturbed, seed, count, at_once)


def _end_on_signals() -> None:
    """Also in the background of a script, which ignores SIGINT: what runs goes with us."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)


async def _swept(
    stage: Stage, undisturbed: Sequence[Story], seed: int, count: int | None, at_once: int
) -> Report:
    known = [point for story in undisturbed for point in points_of(story.script, story.crossed)]
    chosen = sample(known, count, random.Random(seed))
    print(f"{len(known)} points in {len(SCRIPTS)} lives, {len(chosen)} of them now", flush=True)
    report = Report(seed, len(known), len(chosen), undisturbed)

    def tell(point: Point, story: Story) -> None:
        report.add(point, story)
        if not story.fine:
            print(f"BROKEN {point}: {story.broken}", flush=True)
        elif report.played % 25 == 0:
            print(f"{report.played} of {len(chosen)} played, {report.hit} hit", flush=True)

    await stage.side_by_side(chosen, at_once, tell)
    return report


def main(argv: Sequence[str] | None = None) -> int:
    """Exit 0 when every promise was kept, and often enough."""
    parser = argparse.ArgumentParser(prog="python -m tests.sweep")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--points", type=int, default=None)
    parser.add_argument("--at-once", type=int, default=AT_ONCE)
    options = parser.parse_args(argv)
    seed = random.randrange(2**32) if options.seed is None else options.seed
    began = time.monotonic()
    try:
        report = asyncio.run(sweep(seed, options.points, options.at_once))
    except asyncio.CancelledError:
        print("sweep: interrupted; nothing is proved")
        return 1
    report.seconds = round(time.monotonic() - began, 1)
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps(report.to_json(), indent=1) + "\n", encoding="utf-8")
    for shortfall in report.shortfalls:
        print(f"sweep: {shortfall}")
    print(report.summary)
    return 1 if report.shortfalls else 0


if __name__ == "__main__":
    sys.exit(main())
