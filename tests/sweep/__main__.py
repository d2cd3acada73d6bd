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


class Sweep:
    """One sweep; what was played counts also when it is interrupted."""

    def __init__(self, seed: int, count: int | None, at_once: int) -> None:
        self._dice = random.Random(seed)
        self._count = count
        self._at_once = at_once
        self.report = Report(seed)

    async def run(self) -> None:
        """Until all is played."""
        self._end_on_signals()
        async with nursery() as controllers:
            stage = Stage(controllers)
            undisturbed = await asyncio.gather(*(stage.undisturbed(script) for script in SCRIPTS))
            points = [p for story in undisturbed for p in points_of(story.script, story.crossed)]
            chosen = sample(points, self._count, self._dice)
            told = f"{len(points)} points in {len(SCRIPTS)} lives, {len(chosen)} of them now"
            print(told, flush=True)
            self.report.begin(len(points), len(chosen), undisturbed)
            await stage.side_by_side(chosen, self._at_once, self._tell)

    def _tell(self, point: Point, story: Story) -> None:
        report = self.report
        report.add(point, story)
        if not story.fine:
            print(f"BROKEN {point}: {story.broken}", flush=True)
        elif report.played % 25 == 0:
            print(f"{report.played} of {report.chosen} played, {report.hit} hit", flush=True)

    def _end_on_signals(self) -> None:
        """Also in the background of a script, which ignores SIGINT: what runs goes with us."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def end() -> None:
            self.report.interrupted = True
            task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, end)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit 0 when every promise was kept, and often enough."""
    parser = argparse.ArgumentParser(prog="python -m tests.sweep")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--points", type=int, default=None)
    parser.add_argument("--at-once", type=int, default=AT_ONCE)
    options = parser.parse_args(argv)
    seed = random.randrange(2**32) if options.seed is None else options.seed
    began = time.monotonic()
    sweep = Sweep(seed, options.points, options.at_once)
    report = sweep.report
    try:
        asyncio.run(sweep.run())
    except BaseException:
        if not report.interrupted:  # else the cloud may have been ended before us
            raise
    report.seconds = round(time.monotonic() - began, 1)
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps(report.to_json(), indent=1) + "\n", encoding="utf-8")
    for shortfall in report.shortfalls:
        print(f"sweep: {shortfall}")
    print(report.summary)
    return 1 if report.shortfalls else 0


if __name__ == "__main__":
    sys.exit(main())
