"""What was out of reach and answers again, from the order of a journal's facts.

That something answers is no news and tells nothing by itself; after a failure it does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

_Topic = tuple[str, str]
STARTING = 15.0
"""Seconds of a life in which an agent that does not answer yet is no news."""

_LISTS = {"InstancesListed": "instances", "OfferingsListed": "offerings"}


class Troubles:
    """What is out of reach at one point of a journal, since when. Give it all facts in order."""

    def __init__(self) -> None:
        self._since: dict[_Topic, float] = {}
        self._epoch: int | None = None
        self._began = -math.inf

    def copy(self) -> Troubles:
        """The same point, to go on from more than once."""
        other = Troubles()
        other._since, other._epoch = dict(self._since), self._epoch
        other._began = self._began
        return other

    def learn(self, other: Troubles) -> None:
        """Takes in what another reader knows at the same point."""
        self._since = {**self._since, **other._since}
        self._began = max(self._began, other._began)

    def begin(self, epoch: int) -> None:
        """The next facts are of this life of the controller, which begins with none known."""
        if epoch != self._epoch:
            self._since.clear()
            self._began = -math.inf
        self._epoch = epoch

    def too_early(self, fact: Mapping[str, Any], at: float) -> bool:
        """Whether it tells only that processes which start together are not all up yet."""
        if fact.get("type") == "Configured" and not fact.get("changed") and self._began < 0:
            self._began = at
        return _kind(fact) == "ClusterUnreachable" and at - self._began < STARTING

    def over(self, fact: Mapping[str, Any], at: float) -> Iterator[tuple[str, str]]:
        """Notes a fact; the subject and sentence of what it ends."""
        kind = _kind(fact)
        if kind == "ClusterUnreachable":
            self._since.setdefault(("cluster", ""), at)
        elif kind == "ListFailed":
            self._since.setdefault((str(fact.get("what")), str(fact.get("pool"))), at)
        elif kind == "ClusterObserved":
            if (since := self._since.pop(("cluster", ""), None)) is not None:
                yield "cluster", f"the cluster agent answers again, after {at - since:.0f} s"
        elif kind in _LISTS:
            pool = str(fact.get("pool") or fact.get("rest", {}).get("pool"))
            if (since := self._since.pop((_LISTS[kind], pool), None)) is not None:
                yield f"pool:{pool}", f"{_LISTS[kind]} are listed again, after {at - since:.0f} s"


def _kind(fact: Mapping[str, Any]) -> str:
    """Lists may be recorded as differences to those before."""
    return str(fact.get("of") if fact.get("type") == "Changed" else fact.get("type"))
