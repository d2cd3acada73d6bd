"""`elasticd events`: the journal as a readable log."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable
from typing import Any

from elasticd.cli.admin_client import AdminClient
from elasticd.cli.common import Commands, add_command, add_daemon, admin_client, duration
from elasticd.cli.output import print_json, print_lines, tell
from elasticd.errors import ElasticdError, NotReachable
from elasticd.ops.durations import moment
from elasticd.ops.text_table import clean

_WAIT = 30.0
"""Seconds for which one long poll is held."""

_AGAIN = 1.0
"""Seconds between two tries to reach a daemon that went away."""

_SUBJECT = 30
"""Columns for `replica:r-1a2b3c4d-29000000-3456`, mostly."""


def add_to(commands: Commands) -> None:
    """Declares the command."""
    parser = add_command(
        commands,
        "events",
        "what happened and why, from the journal",
        "Prints the controller's journal as a log: when, which node, replica, model or pool, what\n"
        "happened to it or was decided for it, and why. With the daemon down it is read from the\n"
        "ledger's file.",
        examples=[
            "elasticd events --since 10m",
            "elasticd events --follow",
            "elasticd events r-1a2b3c4d-29000000-5 # about one thing only",
        ],
        exits="0 fine · 2 wrong usage · 3 daemon not reachable",
    )
    add_daemon(parser)
    parser.add_argument(
        "about", nargs="?", metavar="ABOUT", help="only lines about what has this in its name"
    )
    parser.add_argument(
        "--since", type=duration, default=3600.0, metavar="TIME", help='how far back (default "1h")'
    )
    parser.add_argument("--follow", action="store_true", help="go on, until Ctrl-C")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.set_defaults(call=events, lines=True)


def events(args: argparse.Namespace) -> int:
    """Exit 0 when the daemon answered, 3 when the file had to."""
    since = time.time() - args.since
    client = admin_client(args)
    try:
        last = _show_past(client, since, args)
    except NotReachable as silent:
        return _from_file(args, silent, since)
    if args.follow:
        try:
            _follow(client, last, since, args)
        except KeyboardInterrupt:
            return 0
    return 0


def _show_past(client: AdminClient, since: float, args: argparse.Namespace) -> int:
    """Shows what there is, page by page; returns where what follows will begin."""
    seq, more = 0, True
    while more:
        answer = client.events(since_seq=seq, since=since)
        seq, more = int(answer["next_seq"]), bool(answer.get("more"))
        _show(answer["entries"], args)
    return seq


def _follow(client: AdminClient, seq: int, since: float, args: argparse.Namespace) -> None:
    """Goes on from `seq`, also across a restart of the daemon; ends with Ctrl-C.

    `since` holds on: where nothing was told yet, `seq` is before all that there is.
    """
    away = False
    while True:
        try:
            answer = client.events(since_seq=seq, since=since, wait=_WAIT)
        except NotReachable as silent:
            if not away:
                tell(f"{silent}; asking again")
            away = True
            time.sleep(_AGAIN)
            continue
        if away:
            tell("the daemon is back")
        away, seq = False, int(answer["next_seq"])
        _show(answer["entries"], args)


def _from_file(args: argparse.Namespace, silent: NotReachable, since: float) -> int:
    from elasticd.cli.last_known import past_entries, state_dir_of
    from elasticd.ops.journal_recovery import Troubles
    from elasticd.ops.journal_story import tell as told_of

    try:
        troubles = Troubles()
        told = (told_of(entry, troubles) for entry in past_entries(state_dir_of(args), since))
        _show((entry for entry in told if entry is not None), args)
        note = "; this is from the ledger's file, and nothing later is known"
    except ElasticdError as none:
        note = f"\nelasticd: no journal: {none}"
    tell(f"{silent}{note}")
    return silent.exit_code


def _show(entries: Iterable[dict[str, Any]], args: argparse.Namespace) -> None:
    shown: list[str] = []
    for entry in entries:
        facts = [part for part in entry.get("facts") or () if _is_about(part, args.about)]
        lines = [part for part in entry.get("lines") or () if _is_about(part, args.about)]
        if not facts and not lines:
            continue
        if args.json:
            print_json({**entry, "facts": facts, "lines": lines}, one_line=True)
            continue
        when = moment(entry["at"])
        # Of a wish that was followed, the decision tells: once is enough for people.
        shown += [
            f"{when}  {clean(part['subject']):<{_SUBJECT}}  {clean(part['text'])}"
            for part in (*(fact for fact in facts if not fact.get("echoed")), *lines)
        ]
    if shown:
        print_lines(shown)


def _is_about(part: dict[str, Any], about: str | None) -> bool:
    return not about or about in str(part.get("subject"))
