"""Names of replica actors: how a restarted agent knows what it finds."""

from __future__ import annotations

NAMESPACE = "elasticd"


def actor_name(replica_id: str, incarnation: int) -> str:
    """One name for one start of one replica."""
    return f"{replica_id}#{incarnation}"


def parse_actor_name(name: str) -> tuple[str, int] | None:
    """Replica id and incarnation; `None`: not one of ours."""
    replica_id, mark, incarnation = name.rpartition("#")
    if not mark or not replica_id or not incarnation.isdecimal():
        return None
    return replica_id, int(incarnation)
