"""A ledger as a controller leaves it: written by the real one, closed in order or not."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from elasticd.core.codec import encode
from elasticd.core.fleet import Node, Replica, Row
from elasticd.core.lifecycle import NodePhase, ReplicaPhase
from elasticd.runtime.ledger import JournalEntry, Ledger

AT = 1_700_000_000.0
"""The last time the controller wrote, seconds since 1970."""

NOTICE = {
    "type": "NoticeArrived",
    "notice_id": "x",
    "pool": "here",
    "instance_id": "i-1",
    "kind": "interruption",
    "seconds_left": 120.0,
}
_NODE = Node("node-ab-1-1", "here", NodePhase.READY, AT - 500, AT - 400, gpus=1)
_LOST = Node("node-ab-1-2", "here", NodePhase.GONE, AT - 500, AT - 60, reason="interruption notice")
_REPLICA = Replica(
    "replica-ab-1-3", 1, "通义", "h", 1, ReplicaPhase.READY, AT - 300, AT - 200, "node-ab-1-1"
)
_ROWS = [
    Row("node", _NODE.id, encode(_NODE)),
    Row("node", _LOST.id, encode(_LOST)),
    Row("replica", _REPLICA.id, encode(_REPLICA)),
    Row("cluster", "name", {"name": "prod"}),
]


def write_ledger(state_dir: Path, *, killed: bool = False) -> None:
    """One node, one that was lost, one replica, two journal entries.

    `killed`: the controller was not closed in order, so that part of it is in the log beside it.
    """
    if not killed:
        asyncio.run(_write(state_dir, close=True))
        return
    child = os.fork()
    if child == 0:
        asyncio.run(_write(state_dir, close=False))
        os._exit(1)  # unreachable: `_write` has ended the process
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


async def _write(state_dir: Path, *, close: bool) -> None:
    ledger = await Ledger.open(state_dir)
    reason = {"subject": "node:node-ab-1-2", "text": "draining → terminating: interruption notice"}
    entries = [
        JournalEntry(AT - 7200.0, (NOTICE,), {"actions": [], "reasons": [], "wake_at": None}),
        JournalEntry(AT - 60.0, (NOTICE,), {"actions": [], "reasons": [reason], "wake_at": None}),
    ]
    await ledger.commit(AT, _ROWS, entries)
    if not close:
        os._exit(0)
    await ledger.aclose()
