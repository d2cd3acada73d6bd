"""The line of one model: who waits, in which order, and how much each key runs already.

Order is priority (9 first), then fairness between keys, then arrival. Fair means: of the keys that
wait at one priority, the one with the fewest requests running on the model goes next. A key that
floods the line fills its own lane and delays itself.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Iterator

from elasticd.traffic.tickets import Ask, Ticket

Lane = tuple[int, str]
"""Priority and key."""


class Line:
    """Waiting tickets in lanes, and running requests by key. `waiting`: how many wait."""

    def __init__(self) -> None:
        self._lanes: dict[Lane, list[Ticket]] = {}
        self._running: dict[str, int] = {}
        self.waiting = 0

    @property
    def idle(self) -> bool:
        """Nobody waits and nothing runs."""
        return not self.waiting and not self._running

    def add(self, ticket: Ticket) -> None:
        """Puts a ticket at its place; who arrived earlier stands in front."""
        bisect.insort(self._lanes.setdefault(_lane(ticket.ask), []), ticket, key=_arrival)
        self.waiting += 1

    def remove(self, ticket: Ticket) -> None:
        """Takes a waiting ticket out."""
        name = _lane(ticket.ask)
        lane = self._lanes[name]
        del lane[bisect.bisect_left(lane, _arrival(ticket), key=_arrival)]
        if not lane:
            del self._lanes[name]
        self.waiting -= 1

    def started(self, key: str) -> None:
        """A request of this key runs."""
        self._running[key] = self._running.get(key, 0) + 1

    def ended(self, key: str) -> None:
        """A request of this key runs no more."""
        left = self._running[key] - 1
        if left:
            self._running[key] = left
        else:
            del self._running[key]

    def in_order(self) -> Iterator[Ticket]:
        """The tickets in the order of their turn, as things stand now.

        A slot that is given changes the order: ask anew after it.
        """
        if len(self._lanes) == 1:  # nearly always, and then there is nothing to compare
            yield from next(iter(self._lanes.values()))
            return
        heads = [
            (-priority, self._running.get(key, 0), _arrival(lane[0]), 0, lane)
            for (priority, key), lane in self._lanes.items()
        ]
        heapq.heapify(heads)
        while heads:
            rank, running, _, at, lane = heads[0]
            yield lane[at]
            if at + 1 < len(lane):
                after = (rank, running, _arrival(lane[at + 1]), at + 1, lane)
                heapq.heapreplace(heads, after)
            else:
                heapq.heappop(heads)


def _lane(ask: Ask) -> Lane:
    return ask.priority, ask.key


def _arrival(ticket: Ticket) -> tuple[float, int]:
    return ticket.arrived, ticket.id
