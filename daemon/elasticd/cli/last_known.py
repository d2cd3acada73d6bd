"""What the ledger's file tells of a fleet whose daemon does not answer: how it was, not is."""

from __future__ import annotations

import argparse
import json
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


@dataclass(frozen=True, slots=True)
class PastEntry:
    """One entry of the journal, as `elasticd.ops.journal_story` reads it."""

    seq: int
    at: float
    epoch: int
    events: list[dict[str, Any]]
    plan: dict[str, Any]


def state_dir_of(args: argparse.Namespace) -> Path:
    """The state directory of the daemon the user means. Raises `ElasticdError`."""
    named = args.config or os.environ.get(CONFIG_VARIABLE) or Path(DEFAULT_CONFIG).exists()
    if args.socket and not named:
        raise ElasticdError("which state directory is not known; name the configuration: -c FILE")
    return places(args).state_dir


def last_known(state_dir: Path) -> LastKnown:
    """Raises `ElasticdError` where there is nothing, or nothing that can be trusted."""
    from elasticd.core.decide import Core
    from elasticd.core.fleet import Row

    with peek(state_dir) as db:
        meta = dict(db.execute("SELECT key, value FROM meta"))
        try:
            at, epoch = float(meta["last_time"]), int(meta["epoch"])
            found = db.execute("SELECT kind, id, doc FROM rows")
            rows = [Row(kind, key, json.loads(doc)) for kind, key, doc in found]
            status = Core(meta["ledger_id"], epoch, rows).status(at)
            recent = list(_recent(db))
        except (KeyError, TypeError, ValueError, AttributeError) as bad:
            raise ElasticdError(
                f"{state_dir}: the ledger was written by another version of elasticd, or is "
                f"damaged ({bad!r}); look with the version that wrote it"
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
    found = db.execute("SELECT at, plan FROM journal ORDER BY seq DESC LIMIT ?", (_RECENT,))
    for at, plan in reversed(found.fetchall()):
        for reason in json.loads(plan).get("reasons", ()):
            yield {"at": at, **reason}


def past_entries(state_dir: Path, since: float) -> Iterator[PastEntry]:
    """The journal from `since` (seconds since 1970) on, oldest first. Raises `ElasticdError`."""
    with peek(state_dir) as db:
        found = db.execute(
            "SELECT seq, at, epoch, events, plan FROM journal WHERE at >= ? ORDER BY seq", (since,)
        )
        for seq, at, epoch, events, plan in found:
            yield PastEntry(seq, at, epoch, json.loads(events), json.loads(plan))
