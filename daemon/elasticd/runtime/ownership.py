"""Whether a ledger's machines can still be reached under the configuration they are found with.

A renamed cluster would leave machines that no list shows and no call reaches: paid for and
forgotten. So the controller does not start over them. Machines of a pool that is not configured any
more are no reason to stand still: they are kept, and the core tells of them until the pool is back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from elasticd.core.fleet import Row
from elasticd.core.specs import FleetSpec
from elasticd.errors import UsageError


def check_ownership(state_dir: Path, fleet: FleetSpec, rows: Sequence[Row]) -> None:
    """Raises `UsageError` when living machines of `rows` are of another cluster or elsewhere."""
    living = [
        row.doc
        for row in rows
        if row.kind == "node" and row.doc is not None and row.doc["phase"] != "gone"
    ]
    if not living:
        return
    count = "1 machine" if len(living) == 1 else f"{len(living)} machines"
    for row in rows:
        if row.kind == "cluster" and row.doc is not None and row.doc["name"] != fleet.cluster:
            raise UsageError(
                f"{state_dir}: {count} of cluster {row.doc['name']!r} are not given back yet, and "
                f"the configuration says `cluster: {fleet.cluster}`; put the old name back and run "
                "`elasticd down` before it is changed, or use another state_dir"
            )
    for row in rows:
        if row.kind == "place" and row.doc is not None:
            _check_place(state_dir, fleet, living, row.id, str(row.doc["place"]))


def _check_place(
    state_dir: Path,
    fleet: FleetSpec,
    living: Sequence[Mapping[str, Any]],
    name: str,
    place: str,
) -> None:
    """A pool that points elsewhere would see none of its machines, and take them for gone."""
    count = sum(doc["pool"] == name for doc in living)
    now = next((pool.place for pool in fleet.pools if pool.name == name), place)
    if count and now != place:
        machines = "1 machine" if count == 1 else f"{count} machines"
        raise UsageError(
            f"{state_dir}: pool {name!r} has {machines} there ({place}), and the configuration "
            f"points elsewhere ({now}); put it back and run `elasticd down`, or give the new pool "
            "another name"
        )
