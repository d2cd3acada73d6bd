"""What the truth of a cloud says of the promises."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from tests.sweep.agent import node_of


@dataclass(frozen=True, slots=True)
class Verdict:
    """Ids of machines of ours that are left, and of foreign ones that somebody ended; names of
    machines that were made more often than once for one node."""

    leaked: list[str]
    launched_twice: list[str]
    foreign_touched: list[str]


def own_machines(
    truth: Mapping[str, Any], cluster: str, foreign: Collection[str]
) -> list[Mapping[str, Any]]:
    """Machines of ours that are there, or are still to come."""
    return [
        machine
        for machine in truth["machines"]
        if machine["state"] != "ended"
        and machine["id"] not in foreign
        and node_of(machine, cluster)
    ]


def judge(truth: Mapping[str, Any], cluster: str, foreign: Collection[str]) -> Verdict:
    """After everything was given back. `foreign`: ids of what was planted.

    A creation that the cloud itself carried out twice is no launch of ours.
    """
    machines, calls = truth["machines"], truth["calls"]["recent"]
    doubled = Counter(c["target"] for c in calls if c["effect"] == "twice" and c["status"])
    made = Counter(m["name"] for m in machines if m["id"] not in foreign)
    return Verdict(
        leaked=[m["id"] for m in own_machines(truth, cluster, foreign)],
        launched_twice=[name for name, count in made.items() if count > 1 + doubled[name]],
        foreign_touched=[
            m["id"]
            for m in machines
            if m["id"] in foreign and (m["stop_asked_at"] is not None or m["state"] == "ended")
        ],
    )
