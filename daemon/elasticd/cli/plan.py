"""`elasticd plan`: which GPUs hold a model, with how much room, and at what price."""

from __future__ import annotations

import argparse

from elasticd.cli.common import Commands, add_command, add_config
from elasticd.cli.output import paint, print_json, print_lines, width


def add_to(commands: Commands) -> None:
    """Declares the command."""
    parser = add_command(
        commands,
        "plan",
        "which GPUs hold a model, and at what price",
        "Shows a model's weights and cache, which of its pools' machines hold it and on how many\n"
        "GPUs, how many tokens and longest requests fit then, and what a replica costs there; the\n"
        "cheapest is marked. Without pools it looks at every GPU kind that is known.",
        examples=[
            "elasticd plan qwen2.5-14b",
            "elasticd plan ./Qwen3-14B --engine-arg max-model-len=32768",
            "elasticd plan qwen2.5-14b --engine-arg kv-cache-dtype=fp8 --json",
        ],
        exits="0 something holds it · 1 nothing does, as far as is known · 2 wrong usage",
    )
    parser.add_argument(
        "model", metavar="MODEL", help="a model of the configuration, or a directory"
    )
    add_config(parser)
    parser.add_argument(
        "--engine-arg",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the engine, over the configuration's; may be repeated",
    )
    parser.add_argument("--json", action="store_true", help="the same as JSON")
    parser.set_defaults(call=plan)


def plan(args: argparse.Namespace) -> int:
    """Exit 0 when something holds the model, 1 when nothing is known to."""
    from elasticd.cli.plan_choices import make_plan
    from elasticd.cli.plan_subject import find_subject
    from elasticd.cli.plan_view import as_json, render

    subject = find_subject(args)
    made = make_plan(subject)
    if args.json:
        print_json(as_json(subject, made))
    else:
        print_lines(render(subject, made, width(), paint()))
    return 0 if made.holds else 1
