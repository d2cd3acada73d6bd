"""`elasticd run` with stand-ins for its children: `stub_run.py PLACE ROLE…`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from elasticd.cli.run import Run, only_supervisor, tell
from elasticd.cli.run_plan import Part
from elasticd.errors import ElasticdError
from elasticd.ops.supervisor import ChildSpec
from elasticd.settings.load import load
from tests.settings.conftest import PROVIDERS

PLACE = Path(sys.argv[1])
STUB = str(Path(__file__).with_name("stub_child.py"))


def part(role: str) -> Part:
    argv = (sys.executable, STUB, role, str(PLACE))
    return Part(ChildSpec(role, argv, PLACE / f"{role}.log", stop_grace=30.0), ())


def main() -> int:
    config = load(PLACE / "elasticd.yaml", PROVIDERS)
    for folder in ("run", "logs"):
        (config.state_dir / folder).mkdir(parents=True, exist_ok=True)
    try:
        with only_supervisor(config.state_dir):
            plan = [part(role) for role in sys.argv[2:]]
            return asyncio.run(Run(config, plan, tell).serve())
    except ElasticdError as bad:
        print(bad)
        return bad.exit_code


sys.exit(main())
