"""`elasticd status`: the fleet at a glance, as it changes, or why it is so."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from elasticd.cli.common import Commands, add_command, add_daemon, admin_client
from elasticd.cli.output import paint, print_json, print_lines, tell, width
from elasticd.errors import ElasticdError, NotReachable, UsageError


def add_to(commands: Commands) -> None:
    """Declares the command."""
    parser = add_command(
        commands,
        "status",
        "the fleet at a glance",
        "Shows models, machines and replicas, what they cost, what is wrong, what has ended in\n"
        "the last hour, and the latest decisions. With the daemon down: the last known state,\n"
        "from the ledger's file and marked as old.",
        examples=[
            "elasticd status",
            "elasticd status --why qwen2.5-14b    # why so many replicas, what is in the way",
            "elasticd status --watch --json       # one line of JSON for each change",
        ],
        exits="0 all is well · 1 degraded · 2 wrong usage · 3 daemon not reachable",
    )
    add_daemon(parser)
    parser.add_argument("--json", action="store_true", help="everything, as the daemon tells it")
    parser.add_argument("--watch", action="store_true", help="go on, until Ctrl-C")
    parser.add_argument(
        "--why",
        nargs="?",
        const="",
        metavar="MODEL",
        help="the chain of reasons, of one model or of all",
    )
    parser.set_defaults(call=status)


def status(args: argparse.Namespace) -> int:
    """Exit 0 when all is well, 1 when degraded, 3 when no daemon answers."""
    if args.json and args.why is not None:
        raise UsageError("--why is for people; with --json the reasons are in `models[].reasons`")
    client = admin_client(args)
    answer: dict[str, Any] | None
    try:
        answer = client.status()
    except NotReachable as silent:
        code = _show_last_known(args, silent)
        if not args.watch:
            return code
        answer = None
    if args.watch:
        from elasticd.cli.watch import watch

        return watch(client, answer, partial(_text_of, why=args.why), as_json=args.json)
    assert answer is not None
    if args.json:
        print_json(answer)
    else:
        print_lines(_text_of(answer, args.why))
    return exit_code(answer)


def exit_code(answer: dict[str, Any]) -> int:
    """0 when all is well, else 1."""
    from elasticd.ops.status_problems import is_fine

    return 0 if is_fine(answer) else 1


def _text_of(answer: dict[str, Any], why: str | None) -> list[str]:
    """What a status looks like; `why` names a model, or is empty for all."""
    if why is None:
        from elasticd.ops.status_view import render

        return render(answer, width(), paint())
    from elasticd.ops.status_why import explain

    return explain(answer, _named(answer, why), width(), paint())


def _named(answer: dict[str, Any], name: str) -> list[dict[str, Any]]:
    models: list[dict[str, Any]] = answer.get("models", [])
    found = [model for model in models if not name or model["name"] == name]
    if found or not name:
        return found
    from elasticd.nearest import did_you_mean

    names = [str(model["name"]) for model in models]
    hint = did_you_mean(name, names) or f"; models: {', '.join(names) or 'none'}"
    raise UsageError(f"no model {name!r}{hint}")


def _show_last_known(args: argparse.Namespace, silent: NotReachable) -> int:
    from elasticd.cli.last_known import LastKnown, last_known, state_dir_of
    from elasticd.ops.durations import age, moment
    from elasticd.ops.status_view import render

    known: LastKnown | None = None
    problem = ""
    try:
        known = last_known(state_dir_of(args))
    except ElasticdError as none:
        problem = str(none)
    if args.json:
        print_json(
            {
                "reachable": False,
                "problem": str(silent),
                "last_known": known.status if known else None,
                "last_known_at": known.at if known else None,
                "last_known_age": known.age if known else None,
                "last_known_problem": problem,
            },
            one_line=args.watch,
        )
    elif known is not None:
        lines = render(known.aged(), width(), paint(), old=True)
        at = f"{age(known.age)} ago, at {moment(known.at)}"
        print_lines([f"OLD: this was the fleet {at}; ages are those of now", *lines])
    tell(str(silent))
    if args.why is not None:
        tell("--why: only a daemon that runs knows the reasons; `elasticd events` has the latest")
    if known is None:
        tell(f"no last known state: {problem}")
    return silent.exit_code
