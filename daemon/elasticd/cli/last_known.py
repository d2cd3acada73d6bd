"""What the ledger's file tells of a fleet whose daemon does not answer: how it was, not is."""

from __future__ import annotations

import argparse
import os
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elasticd.cli.common import CONFIG_VARIABLE, DEFAULT_CONFIG, places
from elasticd.cli.ledger_peek import peek
from elasticd.errors import ElasticdError
from elasticd.runtime.ledger_content import read_content
from elasticd.runtime.ledger_journal import JournalEntry, read_entries, read_latest

_RECENT = 50


@dataclass(frozen=True, slots=True)
class LastKnown:
    """A status as of `at`, seconds since 1970; its ages are those of that time."""

    at: float
    status: dict[str, Any]

    @property
    def age(self) -> float:
        """Seconds since then."""
        return max(0.0, time.time() - self.at)

    def aged(self) -> dict[str, Any]:
        """The status with its ages as of now."""
        seconds = self.age
        return {**_aged(self.status, seconds), "at": self.at + seconds}


_GROWS, _SHRINKS = frozenset({"age", "dead_for", "closed_for"}), frozenset({"seconds_left"})


def _aged(value: Any, seconds: float) -> Any:
    if isinstance(value, list):
        return [_aged(part, seconds) for part in value]
    if not isinstance(value, dict):
        return value
    aged = {}
    for key, part in value.items():
        if isinstance(part, float) and (key in _GROWS or key.endswith("_age")):
            aged[key] = part + seconds
        elif isinstance(part, float) and key in _SHRINKS:
            aged[key] = max(0.0, part - seconds)
        else:
            aged[key] = _aged(part, seconds)
    return aged


def state_dir_of(args: argparse.Namespace) -> Path:
    """The state directory of the daemon the user means. Raises `ElasticdError`."""
    named = args.config or os.environ.get(CONFIG_VARIABLE) or Path(DEFAULT_CONFIG).exists()
    if args.socket and not named:
        raise ElasticdError("which state directory is not known; name the configuration: -c FILE")
    place = places(args)
    if args.socket and not args.config and place.socket != Path(args.socket):
        raise ElasticdError(
            f"{args.socket} is not the socket of {place.state_dir}; name the configuration of that "
            "daemon: -c FILE"
        )
    return place.state_dir


def last_known(state_dir: Path) -> LastKnown:
    """Raises `ElasticdError` where there is nothing, or nothing that can be trusted."""
    from elasticd.core.decide import Core

    with peek(state_dir) as db:
        db.execute("BEGIN")  # one moment: a controller may write meanwhile
        content = read_content(db)
        meta, rows = content.meta, content.rows
        try:
            at, epoch = float(meta["last_time"]), int(meta["epoch"])
            status = Core(meta["ledger_id"], epoch, rows).status(at)
            recent = list(_recent(db))
        except (KeyError, TypeError, ValueError, AttributeError) as bad:
            raise ElasticdError(
                f"{state_dir}: the ledger was written by another version of elasticd ({bad!r}); "
                "look with the version that wrote it"
            ) from bad
    if not at:
        raise ElasticdError(f"{state_dir}: its controller has not decided anything yet")
    status["recent"] = recent
    for row in rows:
        if row.kind == "cluster" and row.doc is not None and not status.get("cluster"):
            status["cluster"] = row.doc.get("name", "")
    return LastKnown(at, status)


def _recent(db: sqlite3.Connection) -> Iterator[dict[str, Any]]:
    """The latest reasons, newest last."""
    for entry in read_latest(db, _RECENT):
        for reason in entry.plan.get("reasons", ()):
            yield {"at": entry.at, **reason}


def past_entries(state_dir: Path, since: float) -> Iterator[JournalEntry]:
    """The journal from `since` (seconds since 1970) on, oldest first. Raises `ElasticdError`."""
    with peek(state_dir, history=True) as db:
        yield from read_entries(db, since=since)
