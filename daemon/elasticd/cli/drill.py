"""`elasticd drill preempt NODE`: a machine is taken away on purpose, as its market would do it."""

from __future__ import annotations

import argparse
from typing import Any

from elasticd.cli.common import (
    Commands,
    add_command,
    add_daemon,
    admin_client,
    asked_by,
    duration,
    named,
)
from elasticd.cli.departure import add_waiting, tell_outcome
from elasticd.cli.output import say

_EXITS = (
    "0 the machine was told to go, and no request was lost · 1 it cannot be taken, or requests\n"
    "were lost · 2 no such node, wrong usage · 3 daemon not reachable"
)


def add_to(commands: Commands) -> None:
    """Declares the command."""
    parser = add_command(
        commands,
        "drill",
        "rehearse a preemption",
        "Rehearses what a market may do to a fleet, on one node of it.",
        examples=["elasticd drill preempt n-1a2b3c4d-29000000-4"],
        exits=_EXITS,
    )
    drills = parser.add_subparsers(metavar="DRILL", required=True)
    preempt_parser = add_command(
        drills,
        "preempt",
        "take a node's machine away, at once or after a notice",
        "Takes a node's machine through its provider, as its market would: at once, or after a\n"
        "notice. Waits for what becomes of it: requests finished, continued, started again and\n"
        "lost, and the seconds until everything serves again.",
        examples=[
            "elasticd drill preempt n-1a2b3c4d-29000000-4",
            "elasticd drill preempt n-1a2b3c4d-29000000-4 --notice 30s",
        ],
        exits=_EXITS,
    )
    add_daemon(preempt_parser)
    preempt_parser.add_argument(
        "node",
        metavar="NODE",
        type=named("a node's id"),
        help="its id, as `elasticd status` shows it, or an unmistakable beginning",
    )
    preempt_parser.add_argument(
        "--notice", type=duration, metavar="TIME", help='seconds of warning, as "30s"'
    )
    add_waiting(preempt_parser)
    preempt_parser.set_defaults(call=preempt)


def preempt(args: argparse.Namespace) -> int:
    """Exit 0 when the machine was told to go, and, unless it was not waited for, nothing lost."""
    client = admin_client(args)
    answer: dict[str, Any] = client.preempt(args.node, args.notice, asked_by())
    left = answer.get("notice")
    if not args.json:
        how = "is taken away now" if left is None else f"goes in {left:.3g} s"
        if answer.get("already"):
            how += ", as it was told before: of two deadlines the earlier holds"
        say(f"{answer.get('node_id', args.node)} {how}; `elasticd status` shows what becomes of it")
    return tell_outcome(args, client, answer, left or 0.0)
