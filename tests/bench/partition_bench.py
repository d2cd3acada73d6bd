"""How long streams wait whose replica is cut off from us: a link is really taken down.

    python tests/bench/partition_bench.py

They must go on elsewhere within twice the stall limit. Says so and exits 0 where there can be no
network namespaces.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.e2e.own_network import inside_command, why_not
from tests.e2e.partition import STALL_LIMIT


def main() -> int:
    if reason := why_not():
        print(f"partition: skipped, {reason}")
        return 0
    done = subprocess.run(inside_command("tests.e2e.partition"), capture_output=True, text=True)
    if done.returncode:
        print(done.stderr[-2000:])
        return 1
    slowest = max(
        scene["slowest_move"] for scene in json.loads(done.stdout.splitlines()[-1]).values()
    )
    bound = 2 * STALL_LIMIT
    print(f"partition: the slowest stream went on after {slowest:.2f} s (bound {bound:g} s)")
    return 0 if slowest <= bound else 1


if __name__ == "__main__":
    sys.exit(main())
