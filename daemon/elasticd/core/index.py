"""Ids by what they have in common, in the order in which they were made.

A fleet of thousands is asked for "the replicas of this model" or "the nodes that boot" many times
in one step; none of these questions may cost a look at everything.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Groups(Generic[K]):
    """Members by key. An id is in at most one group."""

    def __init__(self, rank: Callable[[str], int]) -> None:
        self._rank = rank
        self._members: dict[K, set[str]] = {}

    def move(self, member: str, old: K | None, new: K | None) -> None:
        """Takes a member from one group to another; `None` is no group."""
        if old == new:
            return
        if old is not None:
            group = self._members[old]
            group.discard(member)
            if not group:
                del self._members[old]
        if new is not None:
            self._members.setdefault(new, set()).add(member)

    def of(self, *keys: K) -> list[str]:
        """The members of these groups, oldest first: the order does not depend on the sets."""
        found: set[str] = set()
        for key in keys:
            found |= self._members.get(key, set())
        return sorted(found, key=self._rank)

    def size(self, key: K) -> int:
        """How many members a group has."""
        return len(self._members.get(key, ()))

    def keys(self) -> Iterable[K]:
        """Keys of groups that have members, in no useful order."""
        return self._members.keys()
