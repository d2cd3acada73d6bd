"""`elasticd drain` and `undrain`: takes a node out of service as for a notice, or takes it back."""

from __future__ import annotations

import argparse

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
from elasticd.cli.output import print_json, say
from elasticd.ops.durations import age

_EXITS = (
    "0 the daemon took it, and no request was lost · 1 the node cannot be drained now, or\n"
    "requests were lost · 2 no such node, wrong usage · 3 daemon not reachable"
)


def add_to(commands: Commands) -> None:
    """Declares the commands."""
    drain_parser = add_command(
        commands,
        "drain",
        "take a node out of service and give its machine back",
        "Starts replacements elsewhere, gives what runs on the node until the deadline: what\n"
        "cannot be finished by then goes on elsewhere before it. Then the machine is given back.\n"
        "Where the time is enough for a replacement, the node serves until there is one. Waits\n"
        "for all of it and tells how many requests were finished, continued, started again, lost.",
        examples=[
            "elasticd drain n-1a2b3c4d-29000000-4",
            "elasticd drain n-1a2b3c4d-29000000-4 --deadline 30m --no-wait",
        ],
        exits=_EXITS,
    )
    undrain_parser = add_command(
        commands,
        "undrain",
        "take a drain back",
        "Takes back a drain that `elasticd drain` asked for: the node serves again with the\n"
        "replicas that still live, and what was started for them elsewhere ends when it is not\n"
        "needed. What the provider itself announced still holds.",
        examples=["elasticd undrain n-1a2b3c4d-29000000-4"],
        exits="0 the daemon took it · 1 nobody has asked for its drain · 2 no such node,\n"
        "wrong usage · 3 daemon not reachable",
    )
    for parser, call in ((drain_parser, drain), (undrain_parser, undrain)):
        add_daemon(parser)
        parser.add_argument(
            "node",
            metavar="NODE",
            type=named("a node's id"),
            help="its id, as `elasticd status` shows it, or an unmistakable beginning",
        )
        parser.set_defaults(call=call)
    add_waiting(drain_parser)
    undrain_parser.add_argument("--json", action="store_true", help="the daemon's answer as JSON")
    drain_parser.add_argument(
        "--deadline",
        type=duration,
        default=120.0,
        metavar="TIME",
        help='how long running requests may take (default "2m")',
    )


def drain(args: argparse.Namespace) -> int:
    """Exit 0 when the daemon took it, and, unless it was not waited for, nothing was lost."""
    client = admin_client(args)
    answer = client.drain(args.node, args.deadline, asked_by())
    if not args.json:
        node = answer.get("node_id", args.node)
        left = float(answer.get("seconds", args.deadline))
        sooner = ", an earlier end holds" if left < args.deadline - 1.0 else ""
        say(
            f"{node} drains, {age(left)} for what still runs{sooner}; "
            f"`elasticd undrain {node}` takes it back"
        )
    return tell_outcome(args, client, answer, args.deadline)


def undrain(args: argparse.Namespace) -> int:
    """Exit 0 when the daemon took it."""
    answer = admin_client(args).undrain(args.node, asked_by())
    if args.json:
        print_json(answer)
        return 0
    node = answer.get("node_id", args.node)
    say(f"the drain of {node} is taken back; `elasticd status` shows whether it serves again")
    return 0
