"""`make prove`: the long form of the two machines, with a report of what was really tried.

    python -m tests.core.prove [--examples N] [--seed N] [--only core|model] [--jobs N] [--shrink]

The *core* machine (`tests/core/machine.py`) drives the pure core, the *model* (`tests/model`) the
shell, the ledger and the core together in virtual time. Both run with other examples each time a
seed is new, in several processes side by side. Writes `build/reports/prove.json`, and exits
non-zero on a violation, or when a rule or a fault was used so rarely that nothing is proved of it.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

REPORT = Path("build/reports/prove.json")
FEWEST_USES = 50
CHUNK = 250
"""Examples of one process: then its memory is given back."""


@dataclass(slots=True)
class Outcome:
    """What some examples came to. `used`: how often each rule and fault did something; `longest`:
    the most seconds that something took which has a limit; `violation` empty: none."""

    used: Counter[str] = field(default_factory=Counter)
    longest: dict[str, float] = field(default_factory=dict)
    violation: str = ""

    def add(self, other: Outcome) -> None:
        """Takes in what further examples came to."""
        self.used.update(other.used)
        for what, seconds in other.longest.items():
            self.longest[what] = max(self.longest.get(what, 0.0), round(seconds, 1))
        self.violation = self.violation or other.violation


@dataclass(frozen=True, slots=True)
class Task:
    """Some examples of one machine."""

    machine: str
    examples: int
    seed: int
    shrink: bool


def core_machine() -> tuple[type[RuleBasedStateMachine], int, Callable[[], Outcome]]:
    """The pure core's: the machine, the steps of an example, and what was tried."""
    from tests.core.machine import AnyOrder
    from tests.core.machine_base import USED

    return AnyOrder, 50, lambda: Outcome(Counter(USED))


def model_machine() -> tuple[type[RuleBasedStateMachine], int, Callable[[], Outcome]]:
    """That of everything at once."""
    from tests.model.effects import EXPECTED, LONGEST, USED
    from tests.model.machine import AllAtOnce

    def tried() -> Outcome:
        return Outcome(Counter({**dict.fromkeys(EXPECTED, 0), **USED}), dict(LONGEST))

    return AllAtOnce, 25, tried


MACHINES = {"core": core_machine, "model": model_machine}


def prove(task: Task) -> Outcome:
    """Runs the examples, in a process of its own."""
    machine, steps, tried = MACHINES[task.machine]()
    violation = ""
    try:
        run_state_machine_as_test(
            seed(task.seed)(machine),
            settings=settings(
                max_examples=task.examples,
                stateful_step_count=steps,
                deadline=None,
                database=None,
                phases=(Phase.generate, Phase.shrink) if task.shrink else (Phase.generate,),
                suppress_health_check=list(HealthCheck),
                print_blob=True,
            ),
        )
    except Exception:
        violation = f"{task}\n{traceback.format_exc()}"
    outcome = tried()
    outcome.violation = violation
    return outcome


def tasks_of(machines: list[str], examples: int, first: int, shrink: bool) -> Iterator[Task]:
    """The machines by turns, so that each of them is tried early."""
    for number, begin in enumerate(range(0, examples, CHUNK)):
        for machine in machines:
            count = min(CHUNK, examples - begin)
            yield Task(machine, count, (first + number) % 2**32, shrink)


def run(tasks: list[Task], jobs: int) -> dict[str, Outcome]:
    """By machine. After a violation no further task begins."""
    found = {task.machine: Outcome() for task in tasks}
    context = get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, max_tasks_per_child=1) as pool:
        under_way: dict[Future[Outcome], Task] = {pool.submit(prove, t): t for t in tasks}
        while under_way:
            for done in wait(under_way, return_when=FIRST_COMPLETED).done:
                task = under_way.pop(done)
                if done.cancelled():
                    continue
                found[task.machine].add(done.result())
                told = sum(outcome.used["examples"] for outcome in found.values())
                print(f"prove: {told} examples so far", file=sys.stderr, flush=True)
                if found[task.machine].violation:
                    for waiting in under_way:
                        waiting.cancel()
    return found


def report_of(outcome: Outcome) -> dict[str, Any]:
    """JSON-able."""
    used = {what: count for what, count in sorted(outcome.used.items()) if what != "examples"}
    return {
        "examples": outcome.used["examples"],
        "used": used,
        "rarely_used": {what: count for what, count in used.items() if count < FEWEST_USES},
        "longest": dict(sorted(outcome.longest.items())),
        "violation": outcome.violation,
    }


def summary_of(name: str, told: dict[str, Any]) -> str:
    """`core 5000 examples, 51 rules and faults, the rarest 324 times`."""
    rarest = min(told["used"].values(), default=0)
    return (
        f"{name} {told['examples']} examples, {len(told['used'])} rules and faults, "
        f"the rarest {rarest} times"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=5000, help="of each machine")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--only", choices=sorted(MACHINES), default=None)
    parser.add_argument("--jobs", type=int, default=2, help="processes side by side")
    parser.add_argument("--shrink", action="store_true", help="look for the shortest failure")
    args = parser.parse_args()
    chosen = random.randrange(2**32) if args.seed is None else args.seed
    machines = [args.only] if args.only else sorted(MACHINES)
    begin = time.monotonic()
    found = run(list(tasks_of(machines, args.examples, chosen, args.shrink)), args.jobs)
    told = {name: report_of(outcome) for name, outcome in found.items()}
    seconds = round(time.monotonic() - begin, 1)
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps({"seed": chosen, "seconds": seconds, "machines": told}, indent=2))
    violated = [name for name, part in told.items() if part["violation"]]
    rare = {name: part["rarely_used"] for name, part in told.items() if part["rarely_used"]}
    for name in violated:
        print(told[name]["violation"])
    if rare and not violated:
        print(f"used less than {FEWEST_USES} times: {rare}")
    print(
        f"prove: seed {chosen}, {seconds:.0f} s; "
        f"{'; '.join(summary_of(name, part) for name, part in told.items())}; "
        f"{f'VIOLATED ({chr(44).join(violated)})' if violated else '0 violations'}"
    )
    enough = all(part["examples"] >= args.examples for part in told.values())
    return 0 if enough and not violated and not rare else 1


if __name__ == "__main__":
    sys.exit(main())
