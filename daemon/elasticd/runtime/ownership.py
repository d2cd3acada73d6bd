"""Whether a ledger's machines can still be reached under the configuration they are found with.

A renamed cluster would leave machines that no list shows and no call reaches: paid for and
forgotten. So the controller does not start over them. Machines of a pool that is not configured any
more are no reason to stand still: they are kept, and the core tells of them until the pool is back.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from elasticd.core.fleet import Row
from elasticd.core.specs import FleetSpec
from elasticd.errors import UsageError


def check_ownership(state_dir: Path, fleet: FleetSpec, rows: Sequence[Row]) -> None:
    """Raises `UsageError` when living machines of `rows` belong to another cluster."""
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
