"""The whole kill matrix: every process in every phase, on one stack with real Ray.

    python -m tests.e2e.full_kill_matrix [--seed N] [--only PROCESS/PHASE]...

The seed decides the order. Writes `build/reports/kills.json`, prints a line for each cell and one
summary line last, and exits non-zero when a cell failed or its phase was not reached, or when
something was left after `down`. A quarter of an hour.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any

from tests.e2e.kill_matrix import PHASES, PROCESSES, Cell, Result, play_all
from tests.e2e.stack_config import ROOT

REPORT = ROOT / "build" / "reports" / "kills.json"


def all_cells(seed: int) -> list[Cell]:
    """Each cell once: processes in any order, phases in that in which one leads to the next.

    Both go round at once, and meet in every cell since their numbers have no common divisor. So
    no process is killed again before it counts as steady, which would make its next start late.
    """
    assert math.gcd(len(PROCESSES), len(PHASES)) == 1
    dice = random.Random(seed)
    processes = dice.sample(PROCESSES, len(PROCESSES))
    first = dice.randrange(len(PHASES))
    return [
        Cell(processes[number % len(PROCESSES)], PHASES[(first + number) % len(PHASES)])
        for number in range(len(PROCESSES) * len(PHASES))
    ]


def _cell(text: str) -> Cell:
    process, _, phase = text.partition("/")
    if process not in PROCESSES or phase not in PHASES:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no cell; PROCESS is one of {', '.join(PROCESSES)}; "
            f"PHASE one of {', '.join(PHASES)}"
        )
    return Cell(process, phase)


def _tell(result: Result) -> None:
    again = "not" if result.whole_again is None else f"in {result.whole_again:.1f} s"
    verdict = "fine" if result.fine else "FAILED" if result.reached else "NOT REACHED"
    arrival = "" if result.arrival is None else f"killed at {result.arrival:.1f} s, "
    print(
        f"{result.process:18} {result.phase:18} {verdict:11} {arrival}whole {again:10} "
        f"({result.on}), answered {result.answered}, told {result.streams_told}, "
        f"cut {result.connections_cut}",
        flush=True,
    )
    for problem in result.problems:
        print(f"    {problem}", flush=True)


def _summary(results: Sequence[Result], cells: int, left: Sequence[str]) -> dict[str, Any]:
    times = sorted(r.whole_again for r in results if r.whole_again is not None)
    return {
        "cells": cells,
        "fine": sum(r.fine for r in results),
        "not_reached": cells - sum(r.reached for r in results),
        "median_whole_again": times[len(times) // 2] if times else None,
        "longest_whole_again": times[-1] if times else None,
        "answered": sum(r.answered for r in results),
        "streams_told": sum(r.streams_told for r in results),
        "connections_cut": sum(r.connections_cut for r in results),
        "requests_lost": sum(r.requests_lost for r in results),
        "second_copies": sum(r.second_copies for r in results),
        "left_after_down": list(left),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Exit 0 when every cell was reached and fine and nothing is left."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.full_kill_matrix")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--only", type=_cell, action="append", metavar="PROCESS/PHASE")
    options = parser.parse_args(argv)
    seed = random.randrange(2**32) if options.seed is None else options.seed
    cells = options.only or all_cells(seed)
    for number in (signal.SIGINT, signal.SIGTERM):
        # Also in the background of a script, which ignores the first: the stack goes with us.
        signal.signal(number, signal.default_int_handler)
    began = time.monotonic()
    results, left, figures = asyncio.run(play_all(cells, _tell))
    summary = _summary(results, len(cells), left)
    report = {
        "seed": seed,
        "seconds": round(time.monotonic() - began, 1),
        **figures,
        **summary,
        "results": [result.to_json() for result in results],
    }
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    fine = summary["fine"] == len(cells) and not left
    print(
        f"kills: {summary['fine']} of {len(cells)} cells fine, {summary['not_reached']} not "
        f"reached, whole again after {summary['median_whole_again']} s (median), "
        f"{summary['longest_whole_again']} s (longest), {summary['requests_lost']} requests lost "
        f"of {summary['answered'] + summary['requests_lost']}, {len(left)} things left, seed {seed}"
    )
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
