"""`make prove`: the long form of the property tests, with a report of what was really tried.

    python -m tests.core.prove [--examples N] [--seed N] [--shrink]

Runs the machine of `tests/core/machine.py` with other examples each time a seed is new, writes
`build/reports/prove.json`, and exits non-zero on a violation, or when a rule or a fault was used so
rarely that nothing is proved of it.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
import traceback
from pathlib import Path

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.core.machine import AnyOrder
from tests.core.machine_base import USED

REPORT = Path("build/reports/prove.json")
STEPS = 50
FEWEST_USES = 50


def prove(examples: int, chosen: int, shrink: bool) -> str:
    """Runs so many examples; what went wrong, empty if nothing."""
    machine = seed(chosen)(AnyOrder)
    try:
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=examples,
                stateful_step_count=STEPS,
                deadline=None,
                database=None,
                phases=(Phase.generate, Phase.shrink) if shrink else (Phase.generate,),
                suppress_health_check=list(HealthCheck),
                print_blob=True,
            ),
        )
    except Exception:
        return traceback.format_exc()
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--shrink", action="store_true", help="look for the shortest failure")
    args = parser.parse_args()
    chosen = random.randrange(2**32) if args.seed is None else args.seed
    begin = time.monotonic()
    violation = prove(args.examples, chosen, args.shrink)
    rare = {rule: count for rule, count in sorted(USED.items()) if count < FEWEST_USES}
    report = {
        "examples": USED["examples"],
        "seed": chosen,
        "seconds": round(time.monotonic() - begin, 1),
        "used": dict(sorted(USED.items())),
        "rarely_used": rare,
        "violation": violation,
    }
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps(report, indent=2))
    fine = not violation and not rare and USED["examples"] >= args.examples
    if violation:
        print(violation)
    print(
        f"prove: {USED['examples']} examples, seed {chosen}, {len(USED) - 1} rules and faults, "
        f"the rarest {min(USED.values(), default=0)} times, "
        f"{'VIOLATED' if violation else '0 violations'}"
    )
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
