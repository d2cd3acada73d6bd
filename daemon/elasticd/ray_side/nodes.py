"""The machines one agent knows: Ray's word and their watchers' own reports."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from elasticd.agent_api.messages import NodeReport, WatcherReport
from elasticd.node.agent_link import REPORT_EVERY, UP
from elasticd.node.versions import mismatch
from elasticd.ray_side.cluster import RayNode
from elasticd.ray_side.notices import aged

# A machine that never got into Ray, or left it, and fell silent, leaves the reports after this.
KEEP_SILENT = 3600.0
# A watcher's last word says nothing about now any more.
STALE = 3 * REPORT_EVERY
# Ray's table is a look behind a watcher that has just said "up".
SURELY_MISSING = 2.0
# How long a machine may serve on without being in Ray. Its raylet ends by itself within a minute
# of a new head's first word; one that hangs is given up.
STRANDED_PATIENCE = 180.0


@dataclass(frozen=True, slots=True)
class _Heard:
    report: WatcherReport
    at: float


class Nodes:
    """Owns what the agent knows of machines. `changed` is called after each piece of news.

    `versions` are those of the head.
    """

    def __init__(
        self, changed: Callable[[], None], versions: Mapping[str, str] | None = None
    ) -> None:
        self._changed = changed
        self._versions = versions or {}
        self._born = time.monotonic()
        self._ray: dict[str, RayNode] = {}
        self._heard: dict[str, _Heard] = {}
        self._mismatches: dict[str, str] = {}
        self._missing_since: dict[str, float] = {}

    def seen(self, nodes: Sequence[RayNode]) -> None:
        """Ray's table; of several entries for one machine a living one counts."""
        self._ray = {n.node_id: n for n in sorted(nodes, key=lambda n: n.alive)}
        now = time.monotonic()
        self._missing_since = {
            node_id: self._missing_since.get(node_id, now)
            for node_id, heard in self._heard.items()
            if heard.report.boot == UP and node_id not in self._ray
        }
        self._changed()

    def admit(self, node_id: str, versions: Mapping[str, str]) -> str:
        """A machine asks to join: why it must not, in one sentence; empty: it is let in."""
        why = mismatch(versions, self._versions, self._engines_beside(node_id))
        if why:
            self._mismatches[node_id] = why
        else:
            self._mismatches.pop(node_id, None)
        boot, tail = (f"failed: {why}", (why,)) if why else ("joining", ())
        self.heard(node_id, WatcherReport(boot, tail, versions))
        return why

    def heard(self, node_id: str, report: WatcherReport) -> None:
        """A watcher reported."""
        self._heard[node_id] = _Heard(report, time.monotonic())
        self._changed()

    def living(self, node_id: str) -> RayNode | None:
        """The machine as Ray has it, if it was alive when Ray was asked last."""
        node = self._ray.get(node_id)
        return node if node is not None and node.alive else None

    def is_leaving(self, node_id: str) -> bool:
        """Whether Ray has been told that this machine goes; that cannot be taken back."""
        node = self._ray.get(node_id)
        return node is not None and node.draining

    def unsettled(self, any_joined: bool) -> str:
        """Why absence from Ray's table is not absence now, for people; empty: it is.

        A head that has lost its memory knows of nobody, while machines serve on. `any_joined`:
        whether machines have ever been let in here.
        """
        now = time.monotonic()
        stranded = sorted(n for n in self._missing_since if self._is_stranded(n, now))
        if stranded:
            return (
                f"the Ray head has lost its memory; until they join it again, it does not know of "
                f"{', '.join(stranded)}"
            )
        if any_joined and not self._ray and now - self._born < 2 * REPORT_EVERY:
            return "the Ray head knows of no machine; listening for what machines say themselves"
        return ""

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
            alive=self._alive(node_id, now) if head_alive else None,
            ray_node_id=node.ray_node_id if node else "",
            address=node.address if node else "",
            gpus=node.gpus if node else 0,
            boot=heard.report.boot if heard else "",
            watcher_age=now - heard.at if heard else None,
            log_tail=heard.report.log_tail if heard else (),
            mismatch="" if node and node.alive else self._mismatches.get(node_id, ""),
            notices=aged(heard.report.notices, now - heard.at) if heard else (),
            notices_complete=heard.report.notices_complete if heard else False,
        )

    def _alive(self, node_id: str, now: float) -> bool | None:
        node, heard = self._ray.get(node_id), self._heard.get(node_id)
        boot = heard.report.boot if heard is not None and now - heard.at <= STALE else ""
        if node is not None:
            # That a node is gone its own watcher knows seconds before Ray does.
            return node.alive and boot in ("", UP)
        if boot != UP:
            return False
        missing = now - self._missing_since.get(node_id, now)
        return None if missing <= STRANDED_PATIENCE else False

    def _is_stranded(self, node_id: str, now: float) -> bool:
        """It serves, as far as its watcher can tell, and the head does not know it."""
        missing = now - self._missing_since[node_id]
        return missing >= SURELY_MISSING and self._alive(node_id, now) is None

    def _engines_beside(self, node_id: str) -> set[str]:
        """The versions of vLLM on the other machines that are in Ray, or on their way there."""
        now = time.monotonic()
        return {
            heard.report.versions["vllm"]
            for other, heard in self._heard.items()
            if other not in {node_id, *self._mismatches}
            and "vllm" in heard.report.versions
            and (self.living(other) is not None or now - heard.at <= STALE)
        }

    def _forget(self, now: float) -> None:
        for node_id, heard in list(self._heard.items()):
            if self.living(node_id) is None and now - heard.at > KEEP_SILENT:
                del self._heard[node_id]
                self._mismatches.pop(node_id, None)


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

    @property
    def any(self) -> bool:
        """Whether any machine has ever joined."""
        return bool(self._used)

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
