"""`elasticd leaks`: machines that carry our name at a provider and should not be there."""

from __future__ import annotations

import argparse
import asyncio

from elasticd.cli.common import Commands, add_command, add_daemon


def add_to(commands: Commands) -> None:
    """Declares the command."""
    parser = add_command(
        commands,
        "leaks",
        "machines at the providers that should not be there",
        "Asks every configured provider itself, whether the daemon runs or not, and compares what\n"
        "carries this cluster's name with the ledger; also for pools and cluster names that the\n"
        "configuration once had, where a configured provider can be asked. A provider that\n"
        "does not answer is unknown, which is not the same as no leaks. --terminate ends machines\n"
        "that this ledger rented and no node stands for, and nothing else.",
        examples=["elasticd leaks", "elasticd leaks --all --json", "elasticd leaks --terminate"],
        exits=(
            "0 none · 1 there are machines that should not be there, or it is not known · "
            "2 wrong usage\nor configuration"
        ),
    )
    add_daemon(parser)
    parser.add_argument("--all", action="store_true", help="also machines that are known")
    parser.add_argument("--terminate", action="store_true", help="end ours that have no node")
    parser.add_argument("--yes", action="store_true", help="do not ask; needed without a terminal")
    parser.add_argument("--json", action="store_true", help="everything found, as JSON")
    parser.set_defaults(call=leaks)


def leaks(args: argparse.Namespace) -> int:
    """Exit 0 when every machine that is listed is known, and every list is."""
    if args.terminate:
        from elasticd.cli.asking import must_be_askable

        must_be_askable("elasticd leaks --terminate", "ends machines", args.yes)
    from elasticd.cli.leak_hunt import hunt

    return asyncio.run(hunt(args))
