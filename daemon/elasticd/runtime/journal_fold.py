"""Long lists in the journal: the first time whole, then only what changed.

A report of the agent about a large fleet has a megabyte and comes again with every change of one
replica; whole, a journal of 64 MiB would reach back a minute. So a list that was recorded before is
recorded as a difference to what was recorded of it last: `{"type": "Changed", "of": TYPE, "lists":
{FIELD: {"put": [items that are new or different], "gone": [keys]}}, "rest": {the other fields}}`.
`Unfolder` puts them together again. Each life of the controller begins with whole lists, and a list
is whole again before its differences outweigh it: a journal whose beginning was dropped can be
read from soon after.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from elasticd.core.codec import encode, to_json
from elasticd.core.events import (
    ClusterObserved,
    Event,
    InstancesListed,
    LoadSampled,
    OfferingsListed,
)
from elasticd.runtime.ledger import JournalEntry

_Item = Any

_LISTS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    ClusterObserved.__name__: {
        "nodes": ("node_id",),
        "replicas": ("replica_id", "incarnation"),
    },
    InstancesListed.__name__: {"instances": ("instance_id",)},
    OfferingsListed.__name__: {"offerings": ("pool", "zone", "machine_type", "market")},
    LoadSampled.__name__: {"loads": ("replica_id",)},
}
"""Which fields of which events are long, and what names an item of each."""

_SLACK = 50
"""Changed items that are always worth a difference, however short the list is."""

CHANGED = "Changed"


@dataclass(slots=True)
class _Written:
    """What the journal says of one list. `changes`: items written since it was whole."""

    lists: Mapping[str, Mapping[str, _Item]]
    changes: int = 0


class Folder:
    """For the writer; one for each life of the controller."""

    def __init__(self) -> None:
        self._written: dict[tuple[str, str], _Written] = {}

    def fold(self, event: Event) -> dict[str, Any]:
        """The event as it goes into the journal. Every event must then really go there."""
        kind = type(event).__name__
        fields = _LISTS.get(kind)
        if fields is None:
            return to_json(event)
        topic = (kind, getattr(event, "pool", ""))
        now = _named_items(event, fields)
        before = self._written.pop(topic, None)
        if now is None:
            return to_json(event)
        if before is not None and (folded := _difference(event, before, now)) is not None:
            self._written[topic] = before
            return folded
        self._written[topic] = _Written(now)
        return to_json(event)

    def forget(self) -> None:
        """Something that was folded did not get into the journal: the next ones are whole."""
        self._written.clear()


def _difference(
    event: Event, before: _Written, now: Mapping[str, Mapping[str, _Item]]
) -> dict[str, Any] | None:
    """What changed, noted in `before`; `None` where the whole is better, or the only way."""
    lists: dict[str, dict[str, Any]] = {}
    changes = before.changes
    for name, items in now.items():
        old = before.lists[name]
        if not _same_order(old, items):
            return None
        put = [item for key, item in items.items() if old.get(key) != item]
        gone = [key for key in old if key not in items]
        lists[name] = {"put": [encode(item) for item in put], "gone": gone}
        changes += len(put) + len(gone)
    if changes > sum(map(len, now.values())) + _SLACK:
        return None
    before.lists, before.changes = now, changes
    rest = {
        f.name: encode(getattr(event, f.name))
        for f in dataclasses.fields(event)
        if f.name not in now
    }
    return {"type": CHANGED, "of": type(event).__name__, "lists": lists, "rest": rest}


def _named_items(
    event: Event, fields: Mapping[str, tuple[str, ...]]
) -> dict[str, dict[str, _Item]] | None:
    """The items of each list by name, in their order; `None` where two have the same name."""
    found: dict[str, dict[str, _Item]] = {}
    for field, keys in fields.items():
        items = getattr(event, field)
        found[field] = {"/".join(str(getattr(item, k)) for k in keys): item for item in items}
        if len(found[field]) != len(items):
            return None
    return found


def _same_order(old: Mapping[str, _Item], new: Mapping[str, _Item]) -> bool:
    """Whether putting and removing gives the new list in its order: what is new stands last."""
    stayed = [key for key in old if key in new]
    return list(new)[: len(stayed)] == stayed


class Unfolder:
    """For readers, who give it the entries in their order.

    `missing` counts the differences whose beginning is not there: the journal was cut before it.
    """

    def __init__(self) -> None:
        self._read: dict[tuple[str, str], dict[str, dict[str, dict[str, Any]]]] = {}
        self._last: JournalEntry | None = None
        self.missing = 0

    def unfold(self, entry: JournalEntry) -> JournalEntry:
        """The entry with whole events; those that cannot be made whole are left out."""
        last, self._last = self._last, entry
        if last is None or (entry.epoch, entry.seq) != (last.epoch, last.seq + 1):
            self._read.clear()  # another life, or entries between were skipped
        return replace(entry, events=tuple(self._events(entry.events)))

    def _events(self, events: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        for event in events:
            if event.get("type") != CHANGED:
                self._note_whole(event)
                yield event
            elif (whole := self._put_together(event)) is not None:
                yield whole
            else:
                self.missing += 1

    def _note_whole(self, event: dict[str, Any]) -> None:
        kind = str(event.get("type"))
        fields = _LISTS.get(kind)
        if fields is None:
            return
        self._read[kind, str(event.get("pool", ""))] = {
            name: {_key_of(item, keys): item for item in event[name]}
            for name, keys in fields.items()
        }

    def _put_together(self, change: Mapping[str, Any]) -> dict[str, Any] | None:
        kind, rest = str(change["of"]), change["rest"]
        known = self._read.get((kind, str(rest.get("pool", ""))))
        if known is None:
            return None
        for name, difference in change["lists"].items():
            items = known[name]
            for key in difference["gone"]:
                items.pop(key, None)
            for item in difference["put"]:
                items[_key_of(item, _LISTS[kind][name])] = item
        return {
            "type": kind,
            **rest,
            **{name: list(items.values()) for name, items in known.items()},
        }


def _key_of(item: Mapping[str, Any], keys: tuple[str, ...]) -> str:
    return "/".join(str(item[key]) for key in keys)
