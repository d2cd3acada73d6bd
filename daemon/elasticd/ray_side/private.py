"""Every use of Ray's private API, in one place: a new Ray version is tried against this file.

Ray 2.60: `GcsClient` answers in a millisecond, keeps working across a restart of a head with a
stored state, and takes time limits; the public calls hang while the head is away.
"""

from __future__ import annotations

import atexit
import socket
import time
from collections.abc import Sequence
from typing import Any

import ray
from ray._private import worker as ray_worker
from ray._raylet import GcsClient  # type: ignore[attr-defined,unused-ignore]
from ray.core.generated import autoscaler_pb2, common_pb2, gcs_pb2

from elasticd.node.ray_env import NODE_LABEL
from elasticd.ray_side.cluster import DriverLost, HeadAway, RayNode

CONNECT_TIMEOUT = 2.0
ASK_TIMEOUT = 5.0


class HeadClient:
    """Asks the head directly, without being a driver. Blocking, bounded."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._client: Any = None

    def table(self) -> list[Any]:
        """The head's table of nodes. Raises `HeadAway`, `DriverLost`."""
        client = self._connected()
        try:
            return list(client.get_all_node_info(timeout=ASK_TIMEOUT).values())
        except Exception as refused:  # Ray raises many kinds; each means: no table
            raise self._trouble(refused) from refused

    def drain(self, ray_node_id: str, reason: str) -> None:
        """Raises `HeadAway`, `DriverLost`."""
        client = self._connected()
        deadline_ms = int((time.time() + 1.0) * 1000)
        kind = autoscaler_pb2.DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")
        try:
            accepted, why_not = client.drain_node(ray_node_id, kind, reason, deadline_ms)
        except Exception as refused:  # as above
            raise self._trouble(refused) from refused
        if not accepted:
            raise HeadAway(f"Ray head {self._address} refuses to drain {ray_node_id}: {why_not}")

    def _trouble(self, refused: Exception) -> HeadAway | DriverLost:
        # A head without its store is another cluster: it refuses this connection for ever, and
        # the driver beside it hangs.
        if "WrongClusterID" in str(refused):
            return DriverLost(
                f"the Ray head {self._address} has come back without its memory; attaching anew"
            )
        return HeadAway(f"Ray head {self._address}: {refused}")

    def _connected(self) -> Any:
        # A GcsClient made while nobody listens blocks for ten seconds and more.
        host, port = self._address.rsplit(":", 1)
        try:
            socket.create_connection((host, int(port)), CONNECT_TIMEOUT).close()
        except OSError as away:
            raise HeadAway(
                f"Ray head {self._address} does not answer: {away.strerror or away}"
            ) from away
        if self._client is None:
            try:
                self._client = GcsClient(address=self._address)
            except ray.exceptions.AuthenticationError as refused:
                raise HeadAway(
                    f"Ray head {self._address} refuses our token: it belongs to another state "
                    f"directory; stop it, or set another `ray.port`"
                ) from refused
            except Exception as refused:  # Ray raises many kinds; each means: no connection
                raise HeadAway(f"Ray head {self._address}: {refused}") from refused
        return self._client


def our_nodes(table: Sequence[Any]) -> list[RayNode]:
    """The nodes of `HeadClient.table` that carry our label."""
    draining = gcs_pb2.NodeSnapshot.State.Value("DRAINING")
    drained = {
        common_pb2.NodeDeathInfo.Reason.Value(f"AUTOSCALER_DRAIN_{why}")
        for why in ("PREEMPTED", "IDLE")
    }
    return [
        RayNode(
            node_id=info.labels[NODE_LABEL],
            ray_node_id=info.node_id.hex(),
            alive=_is_alive(info),
            address=info.node_manager_address,
            gpus=int(info.resources_total.get("GPU", 0)),
            draining=info.state_snapshot.state == draining or info.death_info.reason in drained,
        )
        for info in table
        if NODE_LABEL in info.labels
    ]


def driver_stands(table: Sequence[Any], own_raylet: str) -> bool:
    """Whether the raylet we are attached to is the living one of its place.

    A restarted head brings a new raylet of its own, at once; that ours is dead, it notices later.
    """
    alive = {info.node_id.hex(): info for info in table if _is_alive(info)}
    own = alive.get(own_raylet)
    if own is None:
        return False
    heads = [node_id for node_id, info in alive.items() if info.is_head_node]
    return not own.is_head_node or heads == [own_raylet]


def _is_alive(info: Any) -> bool:
    return bool(info.state == gcs_pb2.GcsNodeInfo.GcsNodeState.Value("ALIVE"))


def assigned_gpus() -> tuple[str, ...]:
    """Inside an actor: the GPU ids Ray assigned to it."""
    return tuple(ray.get_runtime_context().get_accelerator_ids()["GPU"])


def leave_quietly() -> None:
    """No farewell at the interpreter's end: it would wait for an absent head."""
    atexit.unregister(ray_worker.shutdown)
