"""`elasticd scale MODEL N`: holds a model at a number of replicas, or gives it back."""

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
from elasticd.cli.output import print_json, say
from elasticd.errors import UsageError
from elasticd.ops.durations import age


def add_to(commands: Commands) -> None:
    """Declares the command."""
    parser = add_command(
        commands,
        "scale",
        "hold a model at a number of replicas",
        "Holds MODEL at N replicas, whatever the load, until the time is over or it is given back\n"
        "with `auto`. A model that counts as failed is tried again.",
        examples=[
            "elasticd scale qwen2.5-14b 4 --for 2h",
            "elasticd scale qwen2.5-14b 0          # until it is given back",
            "elasticd scale qwen2.5-14b auto       # the autoscaler decides again",
        ],
        exits=(
            "0 the daemon took it · 1 it cannot be done now · "
            "2 no such model, more than max_replicas ·\n3 daemon not reachable"
        ),
    )
    add_daemon(parser)
    parser.add_argument(
        "model",
        metavar="MODEL",
        type=named("a model's name"),
        help="its name in the configuration",
    )
    parser.add_argument(
        "replicas", metavar="N|auto", type=_count, help="0 to max_replicas, or auto"
    )
    parser.add_argument(
        "--for", dest="seconds", type=duration, metavar="TIME", help='how long, as "2h"'
    )
    parser.add_argument("--json", action="store_true", help="the daemon's answer as JSON")
    parser.set_defaults(call=scale)


def scale(args: argparse.Namespace) -> int:
    """Exit 0 when the daemon took it."""
    replicas = None if args.replicas < 0 else args.replicas
    if replicas is None and args.seconds is not None:
        raise UsageError("`auto` gives the model back at once; leave --for out")
    if args.seconds == 0:
        raise UsageError("--for: holding it for no time does nothing; give a longer one")
    answer = admin_client(args).scale(args.model, replicas, args.seconds, asked_by())
    if args.json:
        print_json(answer)
    elif replicas is None:
        say(f"{args.model} is given back to the autoscaler")
    else:
        until = (
            f"until `elasticd scale {args.model} auto`"
            if args.seconds is None
            else f"for {age(args.seconds)}"
        )
        say(f"{args.model} is held at {replicas} replica{'s' * (replicas != 1)} {until}")
    return 0


_AUTO = -1


def _count(text: str) -> int:
    """`auto` is -1: argparse takes `None` for "not given"."""
    if text == "auto":
        return _AUTO
    if text.isascii() and text.isdigit() and len(text) < 7:
        return int(text)
    raise argparse.ArgumentTypeError(
        f"not a number of replicas: {text!r}; write 0, 1, 2, … or auto"
    )
