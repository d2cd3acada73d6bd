"""`elasticd status`: the fleet at a glance."""

from __future__ import annotations

import argparse
import json

from elasticd.cli.common import Commands, add_daemon, admin_client


def add_to(commands: Commands) -> None:
    """Declares the command."""
    parser = commands.add_parser("status", help="the fleet at a glance")
    add_daemon(parser)
    parser.add_argument("--json", action="store_true", help="everything, as the daemon tells it")
    parser.set_defaults(call=status)


def status(args: argparse.Namespace) -> int:
    """Exit 0 when all is well, 1 when degraded, 3 when no daemon answers."""
    from elasticd.ops.status_view import is_fine, render

    answer = admin_client(args).status()
    if args.json:
        print(json.dumps(answer, indent=2, ensure_ascii=False))
    else:
        from rich.console import Console

        Console(highlight=False).print(render(answer))
    return 0 if is_fine(answer) else 1
