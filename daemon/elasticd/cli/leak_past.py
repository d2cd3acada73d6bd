"""Under which names this ledger may have rented, beside those of the configuration.

A pool or a cluster that was renamed or removed takes its machines out of every list, and so does a
pool that points elsewhere. The ledger's
rows, the fleets in its journal, and the directories of its pools still know the names, and the
fleets also where each pool's machines were.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elasticd.cli.ledger_peek import peek
from elasticd.errors import ElasticdError
from elasticd.runtime.ledger_content import read_content


@dataclass(frozen=True, slots=True, order=True)
class Name:
    """What a provider finds machines by, beside the account."""

    cluster: str
    pool: str


@dataclass(frozen=True, slots=True)
class Former:
    """A name that the configuration has no more, or has for another place. `places`: where its
    machines were, as the journal tells it; none: not known. `moved`: the name is configured, and
    the machines that the ledger has under it are at one of `places`."""

    name: Name
    places: frozenset[str] = frozenset()
    moved: bool = False


def former_names(state_dir: Path, cluster: str, configured: Mapping[str, str]) -> list[Former]:
    """Names of earlier fleets. Never raises: of what cannot be read nothing is known.

    `cluster` and `configured`: its name now, and the places of its pools by their names.
    """
    places: dict[Name, list[str]] = {}
    with contextlib.suppress(ElasticdError):
        for name, place in _remembered(state_dir, cluster):
            places.setdefault(name, []).extend([place] if place else [])
    remembered = {name.pool for name in places}
    for pool in _directories(state_dir / "pools"):
        if pool not in remembered:
            places[Name(cluster, pool)] = []
    now = {Name(cluster, pool): place for pool, place in configured.items()}
    told = (_former(name, places[name], now.get(name)) for name in sorted(places))
    return [one for one in told if one is not None]


def _former(name: Name, places: Sequence[str], now: str | None) -> Former | None:
    """`places`: the latest first. `now`: where the configuration has it; `None`: nowhere."""
    others = [place for place in places if now is None or not same_place(place, now)]
    if now is None:
        return Former(name, frozenset(others))
    return Former(name, frozenset(others), places[0] in others) if others else None


def same_place(known: str, place: str) -> bool:
    """Older journals tell the provider alone."""
    return place == known or place.startswith(f"{known},")


def _directories(pools: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in os.scandir(pools) if entry.is_dir())
    except OSError:
        return []


def _remembered(state_dir: Path, cluster: str) -> Iterator[tuple[Name, str]]:
    """Names with a place, or with none; what the rows say of it comes first: it is the latest."""
    with peek(state_dir) as db:
        db.execute("BEGIN")  # one moment: a controller may write meanwhile
        rows = read_content(db).rows
        told = next((r.doc["name"] for r in rows if r.kind == "cluster" and r.doc), cluster)
        for row in rows:
            if row.kind == "node" and row.doc is not None:
                yield Name(str(told), str(row.doc.get("pool"))), ""
            elif row.kind == "pool":
                yield Name(str(told), row.id), ""
            elif row.kind == "place" and row.doc is not None:
                yield Name(str(told), row.id), str(row.doc.get("place", ""))
        for fleet in _fleets(db):
            for pool in fleet.get("pools", ()):
                place = str(pool.get("place") or f"provider {pool.get('provider')}")
                yield Name(str(fleet.get("cluster")), str(pool.get("name"))), place


def _fleets(db: sqlite3.Connection) -> Iterator[dict[str, Any]]:
    """Every fleet that the journal still knows, the latest first; what is damaged tells none."""
    query = (
        "SELECT CAST(events AS BLOB) FROM journal WHERE instr(events, '\"Configured\"') > 0 "
        "ORDER BY seq DESC"
    )
    with contextlib.suppress(sqlite3.DatabaseError):
        for (text,) in db.execute(query):
            with contextlib.suppress(ValueError, TypeError, AttributeError):
                for event in json.loads(text):
                    if event.get("type") == "Configured" and isinstance(event.get("spec"), dict):
                        yield event["spec"]
