"""Giving everything back: replicas are closed and stopped, machines ended until none is left."""

from __future__ import annotations

from elasticd.core.drain import drain_replica, lose_node
from elasticd.core.lifecycle import COUNTED, NodePhase
from elasticd.core.state import State, Step

PATIENCE = 20.0
"""Seconds in which running requests may finish; then the machines go with what is on them."""

_ENDING = {NodePhase.TERMINATING, NodePhase.GONE}


def give_back(state: State, step: Step) -> None:
    """One step towards an empty fleet."""
    why = f"given back ({state.down})"
    end = state.down_since + PATIENCE
    for replica in state.fleet.replicas(COUNTED):
        drain_replica(state, step, replica, end, why)
    over = step.due(end)
    for node in state.fleet.nodes():
        if node.phase not in _ENDING and (over or not state.fleet.live_on(node.id)):
            lose_node(state, step, node, NodePhase.TERMINATING, why)
