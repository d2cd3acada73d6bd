"""A status without a controller that decides: from the ledger's rows, as they were left.

A core made from them tells it; it is never given a step. Where even that breaks, the rows speak
for themselves.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from elasticd.core.fleet import Row
from elasticd.errors import ElasticdError
from elasticd.runtime.contained import one_line
from elasticd.runtime.ledger_file import read_only
from elasticd.runtime.ledger_journal import read_latest
from elasticd.runtime.ports import ControlCore, CoreFactory

_RECENT = 50
"""Journal entries whose reasons are told."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class LastKnown:
    """What the ledger holds; nothing of it was written. `problem`: why it could not be read.

    `recent`: the latest reasons of its journal, newest last.
    """

    ledger_id: str = ""
    epoch: int = 0
    last_time: float = 0.0
    rows: tuple[Row, ...] = ()
    problem: str = ""
    recent: tuple[Mapping[str, Any], ...] = ()


def read_last_known(state_dir: Path) -> LastKnown:
    """Blocks; never raises."""
    try:
        with read_only(state_dir / "ledger.sqlite") as db:
            meta = dict(db.execute("SELECT key, value FROM meta"))
            found = db.execute("SELECT kind, id, doc FROM rows")
            rows = tuple(Row(kind, key, json.loads(doc)) for kind, key, doc in found)
            recent = tuple(_recent(db))
        return LastKnown(
            str(meta["ledger_id"]),
            int(meta["epoch"]),
            float(meta["last_time"]),
            rows,
            recent=recent,
        )
    except ElasticdError as refused:
        return LastKnown(problem=str(refused))
    except Exception as bad:  # whatever made the controller fail may be in here
        return LastKnown(problem=f"the ledger cannot be read: {one_line(bad)}")


def _recent(db: sqlite3.Connection) -> Iterator[Mapping[str, Any]]:
    """A journal that is damaged costs nothing but its history."""
    try:
        entries = read_latest(db, _RECENT)
    except Exception as bad:
        _log.warning("no_recent_decisions", error=one_line(bad))
        return
    for entry in entries:
        for reason in entry.plan.get("reasons", ()):
            yield {"at": entry.at, **reason}


class LastPicture:
    """`status` as of `known`; it never raises."""

    def __init__(self, known: LastKnown, core_factory: CoreFactory) -> None:
        self._known = known
        self._core: ControlCore | None = None
        if known.problem:  # one made of nothing would say that nothing is there
            return
        try:
            self._core = core_factory(known.ledger_id, known.epoch, known.rows)
        except Exception as broken:
            _log.warning("no_picture_of_the_core", error=one_line(broken))

    def status(self, now: float) -> dict[str, Any]:
        """JSON-able, in the core's words as far as it can still say them."""
        try:
            told = self._core.status(now) if self._core is not None else {}
            json.dumps(told, allow_nan=False)
        except Exception:
            self._core, told = None, {}
        return {**self._bare(now), **told}

    def _bare(self, now: float) -> dict[str, Any]:
        docs = [(row.kind, row.id, row.doc) for row in self._known.rows if row.doc is not None]
        cluster = next((d.get("name", "") for kind, _, d in docs if kind == "cluster"), "")
        return {
            "at": now,
            "cluster": cluster,
            "ledger_id": self._known.ledger_id,
            "models": [],
            "nodes": [_node(key, doc) for kind, key, doc in docs if kind == "node"],
            "replicas": [],
            "pools": [],
            "down": False,
            "cluster_seen_age": None,
            "cluster_complete": False,
            "cluster_detail": "",
            "recent": [],
        }


def _node(node_id: str, doc: dict[str, Any]) -> dict[str, Any]:
    told = {key: doc.get(key) for key in ("pool", "phase", "reason", "instance_id", "address")}
    return {
        "id": node_id,
        **{key: value if isinstance(value, str) else "" for key, value in told.items()},
    }
