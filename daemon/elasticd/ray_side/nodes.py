"""The machines one agent knows: Ray's word and their watchers' own reports."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from elasticd.agent_api.messages import NodeReport, WatcherReport
from elasticd.ray_side.cluster import RayNode

# A machine that never got into Ray, or left it, and fell silent, leaves the reports after this.
KEEP_SILENT = 3600.0


@dataclass(frozen=True, slots=True)
class _Heard:
    report: WatcherReport
    at: float


class Nodes:
    """Owns what the agent knows of machines. `changed` is called after each piece of news."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._ray: dict[str, RayNode] = {}
        self._heard: dict[str, _Heard] = {}

    def seen(self, nodes: Sequence[RayNode]) -> None:
        """Ray's table; of several entries for one machine a living one counts."""
        self._ray = {n.node_id: n for n in sorted(nodes, key=lambda n: n.alive)}
        self._changed()

    def heard(self, node_id: str, report: WatcherReport) -> None:
        """A watcher reported."""
        self._heard[node_id] = _Heard(report, time.monotonic())
        self._changed()

    def living(self, node_id: str) -> RayNode | None:
        """The machine as Ray has it, if it was alive when Ray was asked last."""
        node = self._ray.get(node_id)
        return node if node is not None and node.alive else None

    def reports(
        self, head_alive: bool, held: Mapping[str, tuple[str, ...]] | None = None
    ) -> tuple[NodeReport, ...]:
        """All machines; without the head nobody knows whether they are alive.

        `held`: by machine, a sentence for each GPU that is kept out of use.
        """
        now = time.monotonic()
        self._forget(now)
        return tuple(
            replace(self._report(node_id, head_alive, now), held=(held or {}).get(node_id, ()))
            for node_id in sorted(self._ray.keys() | self._heard.keys())
        )

    def _report(self, node_id: str, head_alive: bool, now: float) -> NodeReport:
        node = self._ray.get(node_id)
        heard = self._heard.get(node_id)
        return NodeReport(
            node_id=node_id,
            alive=node.alive if node is not None and head_alive else None,
            ray_node_id=node.ray_node_id if node else "",
            address=node.address if node else "",
            gpus=node.gpus if node else 0,
            boot=heard.report.boot if heard else "",
            watcher_age=now - heard.at if heard else None,
            log_tail=heard.report.log_tail if heard else (),
        )

    def _forget(self, now: float) -> None:
        for node_id, heard in list(self._heard.items()):
            if self.living(node_id) is None and now - heard.at > KEEP_SILENT:
                del self._heard[node_id]


class Joins:
    """Which join tokens have been used, kept in a file across restarts of the agent.

    A token belongs to the first machine that shows it: that machine may ask again with its own
    nonce (the answer may have been lost), any other is refused.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._used: dict[str, str] = {}
        if path.exists():
            self._used = dict(line.split() for line in path.read_text().splitlines() if line)

    def take(self, node_id: str, nonce: str) -> bool:
        """Whether this machine may have the token; written down before the answer."""
        digest = hashlib.sha256(nonce.encode()).hexdigest()
        owner = self._used.get(node_id)
        if owner is not None:
            # Without a nonce (an older watcher) once is once.
            return bool(nonce) and hmac.compare_digest(owner, digest)
        with self._path.open("a") as out:
            out.write(f"{node_id} {digest}\n")
        self._used[node_id] = digest
        return True
