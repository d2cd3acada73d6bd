"""`elasticd down`: gives every machine back and says what was ended, and what may be left."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from elasticd.cli.asking import agreed
from elasticd.cli.common import (
    Commands,
    add_command,
    add_daemon,
    admin_client,
    duration,
    must_act,
    places,
)
from elasticd.cli.descent import Descent, gist, living
from elasticd.cli.output import print_json, say, tell
from elasticd.cli.unattended import unattended
from elasticd.errors import ElasticdError, NotReachable
from elasticd.ops.status_money import money

_POLL = 0.5
_PATIENCE = 20.0
"""Seconds of silence that a restart of the controller may take."""

_STANDSTILL = 600.0
"""Seconds in which nothing ends, after which this command waits no longer."""


def add_to(commands: Commands) -> None:
    """Declares the command."""
    parser = add_command(
        commands,
        "down",
        "give every machine back",
        "Stops serving, ends every machine that was rented, follows until the providers confirm\n"
        "it, and says what was ended and what could not be. Asks first in a terminal. Nothing is\n"
        "rented afterwards until elasticd is started again.",
        examples=["elasticd down", "elasticd down --yes --json", "elasticd down --yes --wait 1h"],
        exits=(
            "0 nothing is left · 1 you said no, something may be left, or processes without a\n"
            "supervisor are · 2 wrong usage · 3 daemon not reachable"
        ),
    )
    add_daemon(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--json", action="store_true", help="what was ended, as JSON")
    parser.add_argument(
        "--wait",
        type=duration,
        default=_STANDSTILL,
        metavar="TIME",
        help='how long nothing may end before it is given up (default "10m"); the daemon goes on',
    )
    parser.set_defaults(call=down)


def down(args: argparse.Namespace) -> int:
    """Exit 0 when nothing is left, 1 when the user said no or anything may be left."""
    client = admin_client(args)
    try:
        status = client.status()
    except NotReachable as silent:
        raise NotReachable(f"{silent}\n{_last_word(args)}") from silent
    must_act(status)
    before = living(status)
    if not args.yes and sys.stdin.isatty() and not agreed(_question(before)):
        tell("nothing was ended")
        return 1
    started = time.monotonic()
    descent = Descent(client, "elasticd down")
    descent.seen.update(before)
    try:
        follow(descent, quiet=args.json, patience=args.wait)
    except KeyboardInterrupt:
        _tell_left(descent, "interrupted; the daemon goes on")
        raise
    running = unattended(_run_dir(args))
    if args.json:
        print_json(_as_json(descent, running))
    else:
        _tell_ended(descent, running, time.monotonic() - started)
    return 1 if descent.left or descent.foreign or running else 0


def follow(descent: Descent, *, quiet: bool, patience: float = _STANDSTILL) -> None:
    """Tells what is still there until nothing is, or until nothing ends any more. A daemon that is
    silent for long is an error: then it is not known whether machines are left."""
    told, silent_since, before = "", None, frozenset[str]()
    moved = time.monotonic()
    while True:
        try:
            left = descent.look()
            silent_since = None
        except NotReachable as bad:
            silent_since = silent_since or time.monotonic()
            if time.monotonic() - silent_since > _PATIENCE:
                names = ", ".join(sorted(descent.seen)) or "not known"
                raise NotReachable(f"{bad}\nmachines not confirmed as ended: {names}") from bad
            left = f"the daemon to answer: {bad}"
        if left is None or descent.hopeless:
            return
        if gist(left) != gist(told) and not quiet:
            say(f"waiting for {left}")
        if (now := frozenset(descent.left)) != before:
            before, moved = now, time.monotonic()
        elif time.monotonic() - moved > patience:
            return
        told = left
        time.sleep(_POLL)


def _last_word(args: argparse.Namespace) -> str:
    """What is known of machines whose daemon does not answer."""
    from elasticd.cli.last_known import last_known, state_dir_of

    try:
        nodes = living(last_known(state_dir_of(args)).status)
    except ElasticdError as nothing:
        return f"what is rented is not known: {nothing}\n`elasticd leaks` asks the providers"
    if not nodes:
        return "its ledger knows of no machine; `elasticd leaks` asks the providers"
    return (
        f"{_many(len(nodes))} of it may be running and paid for: {', '.join(sorted(nodes))}; "
        "start it with `elasticd run`, then `elasticd down`; `elasticd leaks` asks the providers"
    )


def _run_dir(args: argparse.Namespace) -> Path:
    """Where the supervisor's marks are. With `--socket` alone: where that lies by default."""
    if args.socket:
        return Path(args.socket).absolute().parent
    return places(args).state_dir / "run"


def _question(nodes: Mapping[str, Any]) -> str:
    names = f" ({', '.join(sorted(nodes))})" if nodes else ""
    return f"Stop serving and give back {_many(len(nodes))}{names}?"


def _tell_ended(descent: Descent, running: Mapping[str, int], seconds: float) -> None:
    ended = descent.ended
    for node in ended:
        price = node.get("price_micros")
        cost = "" if price is None else f" at {money(price, node.get('currency'))}/h"
        say(f"ended {node['id']} (pool {node['pool']}, {node.get('market') or '?'}{cost})")
    took = f"{_many(len(ended))} ended in {seconds:.0f} s"
    if descent.left:
        say(took)
        _tell_left(descent, "the daemon goes on trying" if not descent.hopeless else "")
    elif running or descent.foreign:
        say(f"{took}; no machine {'of ours ' if descent.foreign else ''}is left")
    else:
        say(f"{took}; nothing is left")
    for sentence in _beside(descent, running):
        tell(sentence)


def _tell_left(descent: Descent, what_goes_on: str) -> None:
    if not descent.left:
        return
    advice = (
        "put their pools back into the configuration and reload, or end them at the provider"
        if descent.hopeless
        else "see `elasticd status`, then `elasticd leaks`, or the provider's console"
    )
    told = ", ".join(descent.left.values())
    parts = [part for part in (what_goes_on, advice) if part]
    tell(f"maybe still running, and paid for: {told}; {'; '.join(parts)}")


def _beside(descent: Descent, running: Mapping[str, int]) -> Iterator[str]:
    if told := descent.told_foreign():
        yield told
    if running:
        pids = ", ".join(f"{name} (process {pid})" for name, pid in running.items())
        yield (
            f"still running here, with no `elasticd run` above: {pids}; `elasticd run` takes over "
            "and, when it is stopped, ends them"
        )


def _as_json(descent: Descent, running: Mapping[str, int]) -> dict[str, Any]:
    return {
        "ended": descent.ended,
        "left": list(descent.left.values()),
        "foreign": descent.foreign,
        "still_running": dict(running),
    }


def _many(count: int) -> str:
    return "1 machine" if count == 1 else f"{count} machines"
