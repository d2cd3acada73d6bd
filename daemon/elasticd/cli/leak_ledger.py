"""What the ledger says of machines, read beside a living controller or with none.

Nothing is locked, made or written. A ledger that is missing or cannot be trusted knows no machine
as ours: then nothing may be ended on its word. What a running daemon tells instead is good for
telling people, not for ending anything.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elasticd.cli.ledger_peek import peek, traces_of
from elasticd.errors import ElasticdError
from elasticd.provider import Instance
from elasticd.runtime.ledger_content import read_content

Node = Mapping[str, Any]
"""A node as the status shows it."""


@dataclass(frozen=True, slots=True)
class LedgerView:
    """The ledger at one moment. `nodes` by id, ended ones for an hour too.

    `adopted`: other ledgers whose machines are ours; `adopted_at`: since when, where it is known,
    in seconds since 1970. `epoch`: its latest life (0: not known), which began at `began` (seconds
    since 1970, `None`: not known). `minted`: by life, the highest number of an id that it is known
    to have given: all of them since the life `history_since` (`None`: it is not known).
    `launched`: the nodes it asked for: all of those after the life `history_since`.
    `problem`: why nothing is known; `missing`: because no controller has run yet.
    """

    ledger_id: str = ""
    cluster: str = ""
    nodes: Mapping[str, Node] = field(default_factory=dict)
    adopted: frozenset[str] = frozenset()
    problem: str = ""
    missing: bool = False
    epoch: int = 0
    began: float | None = None
    minted: Mapping[int, int] = field(default_factory=dict)
    history_since: int | None = None
    launched: frozenset[str] = frozenset()
    adopted_at: Mapping[str, float] = field(default_factory=dict)

    def is_ours(self, ledger_id: str) -> bool:
        """Whether machines with this mark are ours."""
        return bool(self.ledger_id) and (ledger_id == self.ledger_id or ledger_id in self.adopted)

    def living(self) -> list[Node]:
        """Nodes that may have a machine."""
        return [node for node in self.nodes.values() if node["phase"] != "gone"]

    def holder(self, instance: Instance) -> Node | None:
        """The living node that has this very machine."""
        return next(
            (n for n in self.living() if n["instance_id"] == instance.instance_id),
            None,
        )


def read_ledger(state_dir: Path) -> LedgerView:
    """Never raises for what it finds: a ledger that cannot be read says so in `problem`."""
    try:
        return _read(state_dir)
    except ElasticdError as refused:
        path = state_dir / "ledger.sqlite"
        missing = not os.path.lexists(path) and not traces_of(path)
        return LedgerView(problem=str(refused), missing=missing)


def told_by_daemon(status: Mapping[str, Any]) -> LedgerView | None:
    """What a running daemon holds, while its file cannot be read; `None`: it does not tell."""
    ledger_id = str(status.get("ledger_id") or "")
    if not ledger_id:
        return None
    pools = status.get("pools") or ()
    nodes = [n for n in status.get("nodes") or () if n.get("since") is not None]
    return LedgerView(
        ledger_id=ledger_id,
        cluster=str(status.get("cluster") or ""),
        nodes={str(node["id"]): node for node in nodes},
        adopted=frozenset(str(key) for pool in pools for key in pool.get("adopted") or ()),
        epoch=int(status.get("epoch") or 0),
    )


def _read(state_dir: Path) -> LedgerView:
    from elasticd.core.decide import Core

    with peek(state_dir) as db:
        db.execute("BEGIN")  # one moment: a controller may write meanwhile
        content = read_content(db)
        meta, rows = content.meta, content.rows
        epoch = int(meta["epoch"])
        ids = [row.id for row in rows if row.kind in ("node", "replica")]
        history = _history(db, epoch)
    try:
        at = float(meta["last_time"])
        status = Core(meta["ledger_id"], epoch, rows).status(at)
        cluster = [row.doc["name"] for row in rows if row.kind == "cluster" and row.doc]
    except (KeyError, TypeError, ValueError, AttributeError) as bad:
        raise ElasticdError(
            f"{state_dir}: the ledger was written by another version of elasticd, or is damaged "
            f"({bad!r}); look with the version that wrote it"
        ) from bad
    return LedgerView(
        ledger_id=str(meta["ledger_id"]),
        cluster=str(cluster[0]) if cluster else "",
        nodes={str(node["id"]): node for node in status["nodes"]},
        adopted=frozenset(row.id for row in rows if row.kind == "adopted"),
        epoch=epoch,
        began=history.began,
        minted=_minted([*ids, *history.nodes], str(meta["ledger_id"])),
        history_since=history.since,
        launched=history.nodes,
        adopted_at={
            row.id: float(row.doc["at"]) for row in rows if row.kind == "adopted" and row.doc
        },
    )


@dataclass(frozen=True, slots=True)
class _History:
    """What the journal knows of launches: `nodes` it asked for, since the life `since`."""

    since: int | None = None
    began: float | None = None
    nodes: frozenset[str] = frozenset()


def _history(db: sqlite3.Connection, epoch: int) -> _History:
    """`epoch`: the life of which it is told when it began."""
    try:
        since = db.execute("SELECT min(epoch) FROM journal").fetchone()[0]
        began = db.execute("SELECT min(at) FROM journal WHERE epoch = ?", (epoch,)).fetchone()[0]
        plans = db.execute(
            "SELECT CAST(plan AS BLOB) FROM journal WHERE instr(plan, '\"LaunchNode\"') > 0"
        ).fetchall()
    except sqlite3.DatabaseError:  # damage in the history alone keeps nobody from being told
        return _History()
    texts = [plan.decode(errors="replace") for (plan,) in plans if isinstance(plan, bytes)]
    nodes = frozenset(found for text in texts for found in _LAUNCHED.findall(text))
    return _History(since, float(began) if isinstance(began, float) else None, nodes)


_LAUNCHED = re.compile(r'"LaunchNode","node_id": ?"([^"]+)"')


def _minted(ids: Iterable[str], ledger_id: str) -> dict[int, int]:
    """By life: the highest number among the ids that it gave."""
    highest: dict[int, int] = {}
    for key in ids:
        if (life := life_of(key, ledger_id)) is not None:
            highest[life[0]] = max(highest.get(life[0], 0), life[1])
    return highest


def life_of(key: str | None, ledger_id: str) -> tuple[int, int] | None:
    """The life in which this ledger gave an id, and its number there; `None`: it does not say."""
    parts = (key or "").split("-")
    if len(parts) != 4 or parts[1] != ledger_id[:8]:
        return None
    if not (parts[2].isdecimal() and parts[3].isdecimal()):
        return None
    return int(parts[2]), int(parts[3])
