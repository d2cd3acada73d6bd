"""`elasticd reload`: the daemon reads its configuration again."""

from __future__ import annotations

import argparse

from elasticd.cli.common import Commands, add_command, add_daemon, admin_client, asked_by
from elasticd.cli.output import print_json, say, tell
from elasticd.errors import UsageError


def add_to(commands: Commands) -> None:
    """Declares the command."""
    parser = add_command(
        commands,
        "reload",
        "have the daemon read its configuration again",
        "Has the running daemon read its configuration file again, as SIGHUP does. A valid one is\n"
        "applied to what changed; one with a problem is refused as a whole and the old one stays.",
        examples=["elasticd reload"],
        exits=(
            "0 it holds now · 1 the controller only observes · 2 refused, the old one stays ·\n"
            "3 daemon not reachable"
        ),
    )
    add_daemon(parser)
    parser.add_argument("--json", action="store_true", help="the outcome as JSON")
    parser.set_defaults(call=reload)


def reload(args: argparse.Namespace) -> int:
    """Exit 0 when the new configuration holds, 2 when it was refused."""
    outcome = admin_client(args).reload(asked_by())
    problem = outcome.get("problem")
    if args.json:
        print_json(outcome)
        return UsageError.exit_code if problem else 0
    for warning in outcome.get("warnings") or ():
        tell(f"warning: {warning}")
    if problem:
        tell(f"refused, the old configuration stays: {problem}")
        return UsageError.exit_code
    changed = ", ".join(outcome.get("changed") or ()) or "nothing"
    say(f"read again; changed: {changed}")
    if outcome.get("needs_restart"):
        say(f"takes effect at the next restart only: {', '.join(outcome['needs_restart'])}")
    return 0
