"""The last routing table on disk, so that a restarted gateway serves without its controller.

The file holds engine keys: 0600 in a 0700 directory, replaced as a whole or not at all.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import structlog

from elasticd.routing_table import RoutingTable, table_from_json, table_to_json
from elasticd.weights.foreign import read_json

_log = structlog.get_logger("elasticd.gateway")


def load_table(path: Path) -> RoutingTable | None:
    """The table kept last; `None` if there is none, or none that can be read (logged)."""
    try:
        return table_from_json(read_json(path.read_bytes()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as bad:
        _log.error("table file ignored", path=str(path), error=str(bad))
        return None


def save_table(path: Path, table: RoutingTable) -> None:
    """Replaces the table on disk in one step."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as out:
        json.dump(table_to_json(table), out)
        out.flush()
        os.fsync(out.fileno())
    draft.replace(path)
