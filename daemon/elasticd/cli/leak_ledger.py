"""What the ledger says of machines, read beside a living controller or with none.

Nothing is locked, made or written. A ledger that is missing or cannot be trusted knows no machine
as ours: then nothing may be ended on its word.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
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

    `adopted`: other ledgers whose machines are ours. `problem`: why nothing is known; `missing`:
    because no controller has run yet.
    """

    ledger_id: str = ""
    cluster: str = ""
    nodes: Mapping[str, Node] = field(default_factory=dict)
    adopted: frozenset[str] = frozenset()
    problem: str = ""
    missing: bool = False

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


def _read(state_dir: Path) -> LedgerView:
    from elasticd.core.decide import Core

    with peek(state_dir) as db:
        db.execute("BEGIN")  # one moment: a controller may write meanwhile
        content = read_content(db)
    meta, rows = content.meta, content.rows
    try:
        at, epoch = float(meta["last_time"]), int(meta["epoch"])
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
    )
