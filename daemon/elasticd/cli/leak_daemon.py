"""What a running daemon says while `elasticd leaks` looks: of the machines that it has listed, its
word is the verdict, so that nobody is told two things."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from elasticd.cli.admin_client import AdminClient
from elasticd.cli.leak_report import Daemon
from elasticd.cli.leak_verdict import COPY_IN_USE, Found, Verdict, foreign
from elasticd.core.reaper import RIVAL
from elasticd.errors import ElasticdError, NotReachable
from elasticd.ops.durations import age
from elasticd.settings.configuration import Configuration

_PATIENCE = 3.0
"""Seconds."""

Thing = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Told:
    """Whether a daemon is there, and its status if it answers."""

    daemon: Daemon
    status: Thing = field(default_factory=dict)


def ask_daemon(args: argparse.Namespace, config: Configuration) -> Told:
    """Never raises: a daemon that does not answer is one of the answers."""
    socket = Path(args.socket) if args.socket else config.admin_socket
    try:
        status = AdminClient(socket, _PATIENCE).status()
    except ElasticdError as silent:
        nobody = isinstance(silent.__cause__, FileNotFoundError | ConnectionRefusedError)
        return Told(Daemon(str(silent), not (nobody and isinstance(silent, NotReachable))))
    return Told(Daemon("", True), status)


def as_the_daemon_says(found: Found, status: Thing) -> Found:
    """The verdict of the daemon where it has one on this machine: that is what it acts on.

    `status`: of a daemon that has this ledger; empty: there is none.
    """
    instance_id = found.instance.instance_id
    for pool in status.get("pools") or ():
        for orphan in _machines(pool, "orphans"):
            if orphan.get("instance_id") == instance_id:
                return _orphan(found, orphan, acts=not pool.get("observed"))
        for machine in _machines(pool, "foreign_machines"):
            if machine.get("instance_id") == instance_id:
                return _foreign(found, str(machine.get("ledger_id") or "?"))
    if status and found.never:
        return replace(found, why=f"{found.never}; the daemon has not listed it yet; look again")
    return found


def _machines(pool: Thing, kind: str) -> Iterator[Thing]:
    return (one for one in pool.get(kind) or () if isinstance(one, Mapping))


def _orphan(found: Found, orphan: Thing, *, acts: bool) -> Found:
    left = orphan.get("seconds_left")
    ends = "the daemon ends it" if left is None else f"the daemon ends it in {age(float(left))}"
    if held := orphan.get("held"):
        ends = f"the daemon does not end it while {held}"
    if not acts:
        ends = "not ended, for the controller only observes"
    if found.verdict is Verdict.LEAK:
        return replace(found, why=f"{found.why}; {ends}")
    marked = found.instance.node_id
    why = "ours, and no node stands for it" + (f" (no {marked})" if marked else "")
    # Without the daemon its ledger does not show whose it is: ending it is left to the daemon.
    return replace(
        found,
        verdict=Verdict.LEAK,
        why=f"{why}; {ends}",
        left_alone=f"it is left to the daemon; {ends}",
    )


def _foreign(found: Found, owner: str) -> Found:
    if not owner.endswith(RIVAL):
        return foreign(found.pool, found.instance, owner)
    if found.verdict is Verdict.RIVAL:
        return found
    why = f"of ledger {owner.removesuffix(RIVAL)}, and {COPY_IN_USE}; it is not ended here"
    return replace(found, verdict=Verdict.RIVAL, why=why)
