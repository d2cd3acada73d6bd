"""`elasticd run` with stand-ins for its children: `stub_run.py PLACE ROLE…`."""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from pathlib import Path

from elasticd.cli.giving_back import PATIENCE
from elasticd.cli.run import Run, only_supervisor
from elasticd.cli.run_display import tell
from elasticd.cli.run_plan import Part
from elasticd.errors import ElasticdError
from elasticd.ops.hangup import Hangups
from elasticd.ops.supervisor import BackOff, ChildSpec
from elasticd.settings.load import load
from tests.settings.conftest import PROVIDERS

PLACE = Path(sys.argv[1])
STUB = str(Path(__file__).with_name("stub_child.py"))


def part(role: str) -> Part:
    argv = (sys.executable, STUB, role, str(PLACE))
    reloads = role in ("controller", "gateway")
    return Part(ChildSpec(role, argv, PLACE / f"{role}.log", stop_grace=30.0, reloads=reloads), ())


def main() -> int:
    hangups = Hangups()
    config = load(PLACE / "elasticd.yaml", PROVIDERS)
    for folder in ("run", "logs"):
        (config.state_dir / folder).mkdir(parents=True, exist_ok=True)
    try:
        with only_supervisor(config.state_dir):
            plan = [part(role) for role in sys.argv[2:]]
            reread = partial(load, PLACE / "elasticd.yaml", PROVIDERS, look_on_host=False)
            patience = PLACE / "patience"
            seconds = float(patience.read_text()) if patience.exists() else PATIENCE
            # Twenty times as soon as usual: what is tested is how often, not how long.
            soon = BackOff(first=0.025, longest=1.5) if (PLACE / "soon").exists() else None
            life = Run(config, plan, tell, hangups, reread, seconds, soon)
            return asyncio.run(life.serve())
    except ElasticdError as bad:
        print(bad)
        return bad.exit_code


sys.exit(main())
