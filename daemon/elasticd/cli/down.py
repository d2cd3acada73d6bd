"""`elasticd down`: gives every machine back and says what was ended."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from elasticd.cli.common import Commands, add_command, add_daemon, admin_client, places
from elasticd.cli.descent import Descent, living
from elasticd.cli.unattended import unattended
from elasticd.errors import NotReachable

_POLL = 0.5
_PATIENCE = 20.0
"""Seconds of silence that a restart of the controller may take."""


def add_to(commands: Commands) -> None:
    """Declares the command."""
    parser = add_command(
        commands,
        "down",
        "give every machine back",
        "Stops serving, ends every machine that was rented, follows until the providers confirm\n"
        "it, and says what was ended. Asks first in a terminal. Nothing is rented afterwards\n"
        "until elasticd is started again.",
        examples=["elasticd down", "elasticd down --yes --json"],
        exits=(
            "0 nothing is left · 1 you said no, or processes without a supervisor are left ·\n"
            "2 wrong usage · 3 daemon not reachable"
        ),
    )
    add_daemon(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--json", action="store_true", help="what was ended, as JSON")
    parser.set_defaults(call=down)


def down(args: argparse.Namespace) -> int:
    """Exit 0 when nothing is left, 1 when the user said no or processes are left."""
    client = admin_client(args)
    before = living(client.status())
    if not args.yes and sys.stdin.isatty() and not _agreed(before):
        print("elasticd: nothing was ended", file=sys.stderr)
        return 1
    started = time.monotonic()
    descent = Descent(client, "elasticd down")
    descent.seen.update(before)
    follow(descent, quiet=args.json)
    ended = descent.seen
    left = unattended(_run_dir(args))
    if args.json:
        answer = {"ended": list(ended.values()), "still_running": left}
        print(json.dumps(answer, indent=2, ensure_ascii=False))
        return 1 if left else 0
    for node in ended.values():
        price = f" at {_price(node)}" if node.get("price_micros") is not None else ""
        print(f"ended {node['id']} (pool {node['pool']}, {node.get('market') or '?'}{price})")
    count = "1 machine" if len(ended) == 1 else f"{len(ended)} machines"
    took = f"{count} ended in {time.monotonic() - started:.0f} s"
    if not left:
        print(f"{took}; nothing is left")
        return 0
    print(f"{took}; no machine is left")
    pids = ", ".join(f"{name} (process {pid})" for name, pid in left.items())
    print(
        f"elasticd: still running here, with no `elasticd run` above: {pids}; `elasticd run` takes "
        "over and, when it is stopped, ends them",
        file=sys.stderr,
    )
    return 1


def follow(descent: Descent, quiet: bool) -> None:
    """Tells what is still there until nothing is. A daemon that is silent for long is an error:
    then it is not known whether machines are left."""
    told, silent_since = "", None
    while True:
        try:
            left = descent.look()
            silent_since = None
        except NotReachable as bad:
            silent_since = silent_since or time.monotonic()
            if time.monotonic() - silent_since > _PATIENCE:
                names = ", ".join(sorted(descent.seen)) or "not known"
                raise NotReachable(f"{bad}\nmachines not confirmed as ended: {names}") from bad
            left = "the daemon to answer"
        if left is None:
            return
        if left != told and not quiet:
            print(f"waiting for {left}", flush=True)
        told = left
        time.sleep(_POLL)


def _run_dir(args: argparse.Namespace) -> Path:
    """Where the supervisor's marks are. With `--socket` alone: where that lies by default."""
    if args.socket:
        return Path(args.socket).absolute().parent
    return places(args).state_dir / "run"


def _agreed(nodes: dict[str, dict[str, Any]]) -> bool:
    count = "1 machine" if len(nodes) == 1 else f"{len(nodes)} machines"
    names = f" ({', '.join(sorted(nodes))})" if nodes else ""
    reply = input(f"Stop serving and give back {count}{names}? [y/N] ")
    return reply.strip().lower() in ("y", "yes")


def _price(node: dict[str, Any]) -> str:
    return f"{node['price_micros'] / 1e6:.2f} {node.get('currency', '')}/h".replace(" /", "/")
