"""`elasticd drill preempt NODE`: a machine is taken away on purpose, as its market would do it."""

from __future__ import annotations

import argparse
import json
from typing import Any

from elasticd.cli.common import Commands, add_daemon, admin_client


def add_to(commands: Commands) -> None:
    """Declares the command."""
    parser = commands.add_parser("drill", help="rehearse a preemption")
    drills = parser.add_subparsers(metavar="DRILL", required=True)
    preempt_parser = drills.add_parser("preempt", help="take a node away, without notice: a kill")
    add_daemon(preempt_parser)
    preempt_parser.add_argument("node", metavar="NODE", help="its id, as `elasticd status` shows")
    preempt_parser.add_argument(
        "--notice", type=_duration, metavar="TIME", help='seconds of warning, as "30s"'
    )
    preempt_parser.add_argument("--json", action="store_true", help="the daemon's answer as JSON")
    preempt_parser.set_defaults(call=preempt)


def preempt(args: argparse.Namespace) -> int:
    """Exit 0 when the machine was told to go."""
    answer: dict[str, Any] = admin_client(args).preempt(args.node, args.notice)
    if args.json:
        print(json.dumps(answer, indent=2, ensure_ascii=False))
        return 0
    how = "is taken away now" if args.notice is None else f"goes in {args.notice:g} s"
    print(f"{answer.get('node_id', args.node)} {how}; `elasticd status` shows what becomes of it")
    return 0


def _duration(text: str) -> float:
    from elasticd.settings.units import parse_duration

    try:
        return parse_duration(text)
    except ValueError as bad:
        raise argparse.ArgumentTypeError(str(bad)) from bad
