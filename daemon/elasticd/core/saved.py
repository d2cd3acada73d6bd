"""What outlives the controller beside nodes and replicas, as rows of the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from elasticd.core.circuit import boot_trouble_again
from elasticd.core.codec import decode, encode
from elasticd.core.pool_state import BOOT, PoolState
from elasticd.core.records import Departure, Row
from elasticd.core.spend import Spend
from elasticd.core.state import Hold, ModelState, State, Step

SPEND_PERIOD = 60.0
"""Seconds between two rows of what has been spent."""


class Keeper:
    """Reads the rows of an earlier life into `state`, and tells which rows have changed since."""

    def __init__(self, state: State, rows: Sequence[Row]) -> None:
        self._state = state
        self._saved: dict[tuple[str, str], dict[str, Any]] = {}
        self._departures: dict[str, tuple[Departure, dict[str, Any]]] = {}
        for row in rows:
            if row.doc is not None and self._read(state, row, row.doc):
                self._saved[row.kind, row.id] = row.doc

    @staticmethod
    def _read(state: State, row: Row, doc: dict[str, Any]) -> bool:
        """Whether it is one of ours."""
        match row.kind:
            case "model":
                state.saved_models[row.id] = doc
            case "usual":
                state.usual[row.id] = float(doc["seconds"])
            case "pool":
                state.saved_pools[row.id] = doc
            case "adopted":
                state.adopted[row.id] = (str(doc["by"]), float(doc["at"]))
            case "spend":
                state.spend = Spend.from_doc(doc)
            case "departure":
                state.departures[row.id] = decode(Departure, doc)
            case "down":
                state.down = str(doc["by"])
            case kind:
                return kind == "cluster"
        return True

    def changed_rows(self) -> list[Row]:
        """Rows to write since the last call, those of the fleet included."""
        rows = list(self._state.fleet.changed_rows())
        now = self._documents()
        for key, doc in now.items():
            if self._saved.get(key) != doc:
                rows.append(Row(*key, doc))
        rows += [Row(*key, None) for key in self._saved if key not in now]
        self._saved = now
        return rows

    def _documents(self) -> dict[tuple[str, str], dict[str, Any]]:
        state = self._state
        docs: dict[tuple[str, str], dict[str, Any]] = {
            ("model", name): doc for name, doc in state.saved_models.items()
        }
        for name, model in state.models.items():
            if model.target is not None:
                docs["model", name] = _model(model, model.target.replicas)
        for what, seconds in state.usual.items():
            docs["usual", what] = {"seconds": round(seconds, 1)}
        if state.down:
            docs["down", "fleet"] = {"by": state.down}
        docs.update({("pool", name): doc for name, doc in state.saved_pools.items()})
        docs.update({("pool", n): doc for n, p in state.pools.items() if (doc := _pool(p))})
        docs.update(
            {("adopted", key): {"by": by, "at": at} for key, (by, at) in state.adopted.items()}
        )
        docs.update(
            {("place", n): {"place": p.spec.place} for n, p in state.pools.items() if p.spec.place}
        )
        docs.update({("departure", key): doc for key, doc in self._departed().items()})
        if state.spend.until is not None:
            docs["spend", "today"] = self._spend(state.spend)
        saved_cluster = self._saved.get(("cluster", "name"))
        if state.cluster:
            docs["cluster", "name"] = {"name": state.cluster}
        elif saved_cluster is not None:
            docs["cluster", "name"] = saved_cluster
        return docs

    def _departed(self) -> dict[str, dict[str, Any]]:
        """Each made anew only where it has changed."""
        before, self._departures = self._departures, {}
        for key, departure in self._state.departures.items():
            known = before.get(key)
            unchanged = known is not None and known[0] is departure
            self._departures[key] = known if known and unchanged else (departure, encode(departure))
        return {key: doc for key, (_, doc) in self._departures.items()}

    def _spend(self, spend: Spend) -> dict[str, Any]:
        """Written now and then, for what a crash loses of it is counted again from the nodes' rows;
        and together with the end of each node."""
        saved = self._saved.get(("spend", "today"))
        settled, spend.settled = spend.settled, False
        if saved is None or saved["began"] != spend.began or saved["ends"] != spend.ends:
            return spend.to_doc()
        if settled:
            return spend.to_doc()
        now = spend.until if spend.until is not None else saved["until"]
        if now - saved["until"] < SPEND_PERIOD:
            return saved
        doc = spend.to_doc()
        return doc if doc["pools"] != saved["pools"] else saved


def _model(model: ModelState, target: int) -> dict[str, Any]:
    doc: dict[str, Any] = {"target": target}
    if model.failures:
        doc["failures"] = model.failures
        doc["last_cause"] = model.last_cause
        doc["last_tail"] = list(model.last_tail)
    hold = model.hold
    if hold is not None:
        doc["hold"] = {"replicas": hold.replicas, "until": hold.until, "by": hold.by}
    return doc


def _pool(pool: PoolState) -> dict[str, Any] | None:
    """Machines that do not boot cost money: a restart must not begin to count anew."""
    boot = pool.troubles.get(BOOT)
    if not pool.boot_failures or boot is None:
        return None
    return {"boot_failures": pool.boot_failures, "text": boot.text, "since": boot.since}


def restore_pool(pool: PoolState, doc: dict[str, Any], step: Step) -> None:
    """What an earlier life knew of a pool that is configured (again)."""
    count = int(doc.get("boot_failures", 0))
    if count:
        boot_trouble_again(pool, step, count, str(doc["text"]), float(doc["since"]))


def restore_model(model: ModelState, doc: dict[str, Any]) -> None:
    """What an earlier life knew of a model that is configured (again)."""
    model.remembered = int(doc["target"]) if "target" in doc else None
    model.failures = int(doc.get("failures", 0))
    model.last_cause = str(doc.get("last_cause", ""))
    model.last_tail = tuple(map(str, doc.get("last_tail", ())))
    hold = doc.get("hold")
    if hold is not None:
        model.hold = Hold(int(hold["replicas"]), hold["until"], str(hold["by"]))
