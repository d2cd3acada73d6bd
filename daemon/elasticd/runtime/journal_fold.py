"""Facts in the journal that were told before: the first time whole, then only what changed.

A report of the agent about a large fleet has a megabyte and comes again with every change of one
replica; whole, a journal of 64 MiB would reach back a minute. So a list that was recorded before is
recorded as a difference to what was recorded of it last: `{"type": "Changed", "of": TYPE, "lists":
{FIELD: {"put": [items that are new or different], "gone": [keys]}}, "rest": {the other fields}}`.

Between the entries, in the quiet steps (`journal_quiet`), nobody looks at single facts, and there a
repetition is the number of its topic alone, and a sample of the gateway `[number, figures …]`.
Topics are numbered in the order in which they first appear. All of it rests on what stands before
it in the same life of the controller: `Unfolder` must be given everything, in order.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from elasticd.core import events as ev
from elasticd.core.codec import decode, encode, from_json, to_json

_Item = Any
_Named = Mapping[str, Mapping[str, _Item]]

_LISTS: Mapping[type, Mapping[str, tuple[str, ...]]] = {
    ev.ClusterObserved: {"nodes": ("node_id",), "replicas": ("replica_id", "incarnation")},
    ev.InstancesListed: {"instances": ("instance_id",)},
    ev.OfferingsListed: {"offerings": ("pool", "zone", "machine_type", "market")},
    ev.LoadSampled: {"loads": ("replica_id",)},
}
"""Which fields of which events are long, and what names an item of each."""

_TOPICS: Mapping[type, tuple[str, ...]] = {
    ev.ClusterObserved: (),
    ev.ClusterUnreachable: (),
    ev.InstancesListed: ("pool",),
    ev.OfferingsListed: ("pool",),
    ev.ListFailed: ("pool", "what"),
    ev.LoadSampled: (),
    ev.DemandSampled: ("model",),
}
"""Events that come again and again, and the fields that say what they are about."""

CHANGED = "Changed"
_Topic = tuple[str, ...]


class Unreadable(ValueError):
    """A part of the journal that says nothing: damaged, or what it rests on is not there."""


@dataclass(slots=True)
class _Told:
    """What the journal says of one topic so far. `named`: its lists by name, where they can be."""

    number: int
    event: ev.Event
    named: _Named | None = None


class Folder:
    """For the writer; one for each life of the controller. What it gives must be written down."""

    def __init__(self) -> None:
        self._told: dict[_Topic, _Told] = {}

    def fold(self, event: ev.Event) -> dict[str, Any]:
        """The event as it stands in an entry, readable by itself as far as may be."""
        topic = _topic(event)
        if topic is None:
            return to_json(event)
        told = self._told.get(topic)
        named = _named_lists(event)
        if told is None:
            self._told[topic] = _Told(len(self._told), event, named)
            return to_json(event)
        before = told.named
        told.event, told.named = event, named
        if named and before and (lists := _differences(before, named)) is not None:
            return _changed(event, lists)
        return to_json(event)

    def brief(self, event: ev.Event) -> int | list[int] | dict[str, Any]:
        """The event as it stands among the quiet steps: as short as it can be."""
        topic = _topic(event)
        told = None if topic is None else self._told.get(topic)
        if told is None:
            return self.fold(event)
        if event == told.event:
            return told.number
        figures = _figures(told.event, event)
        if figures is None:
            return self.fold(event)
        # Later differences count from here, for whoever reads it puts the figures in, too.
        told.event, told.named = event, _named_lists(event)
        return [told.number, *figures]

    def forget(self) -> None:
        """Something that was folded did not get into the journal: all begins anew."""
        self._told.clear()


class Unfolder:
    """For the reader, who gives it all events of a life in their order."""

    def __init__(self) -> None:
        self._numbers: dict[_Topic, int] = {}
        self._events: list[ev.Event] = []

    def read(self, item: Any) -> ev.Event:
        """The event that was folded. Raises `Unreadable`."""
        try:
            if isinstance(item, int):
                return self._numbered(item)
            event = self._made(item)
        except (LookupError, TypeError, ValueError, AttributeError) as bad:
            raise Unreadable(f"an event cannot be read: {bad!r}") from bad
        topic = _topic(event)
        if topic is not None:
            number = self._numbers.setdefault(topic, len(self._events))
            self._events[number : number + 1] = [event]
        return event

    def _made(self, item: Any) -> ev.Event:
        if isinstance(item, list):
            return _with_figures(self._numbered(item[0]), item[1:])
        if item["type"] == CHANGED:
            return self._put_together(item)
        made: ev.Event = from_json(item)
        return made

    def _numbered(self, number: int) -> ev.Event:
        if number < 0:
            raise Unreadable(f"topic {number}")
        return self._events[number]

    def _put_together(self, change: Mapping[str, Any]) -> ev.Event:
        kind = next(kind for kind in _LISTS if kind.__name__ == change["of"])
        hints = typing.get_type_hints(kind)
        bare: Any = decode(kind, {**change["rest"], **dict.fromkeys(_LISTS[kind], ())})
        topic = _topic(bare)
        named = _named_lists(self._events[self._numbers[topic or ()]])
        if named is None:
            raise Unreadable(f"a difference to a list of {change['of']} without names")
        lists = {}
        for field, difference in change["lists"].items():
            items = dict(named[field])
            for key in difference["gone"]:
                del items[key]
            put = decode(hints[field], difference["put"])
            items.update(_named(put, _LISTS[kind][field]))
            lists[field] = tuple(items.values())
        return typing.cast(ev.Event, replace(bare, **lists))


def _topic(event: ev.Event) -> _Topic | None:
    """What a repeating event is about; `None` for one that is always told whole."""
    kind = type(event)
    fields = _TOPICS.get(kind)
    if fields is None:
        return None
    return (kind.__name__, *(str(getattr(event, field)) for field in fields))


def _named_lists(event: ev.Event) -> _Named | None:
    """The items of each list by name, in their order; `None` where two have the same name."""
    found = {}
    for field, keys in _LISTS.get(type(event), {}).items():
        items = getattr(event, field)
        found[field] = _named(items, keys)
        if len(found[field]) != len(items):
            return None
    return found


def _named(items: tuple[_Item, ...], keys: tuple[str, ...]) -> dict[str, _Item]:
    if len(keys) == 1:
        return {getattr(item, keys[0]): item for item in items}
    return {"/".join(str(getattr(item, key)) for key in keys): item for item in items}


def _differences(before: _Named, now: _Named) -> dict[str, Any] | None:
    """What changed in each list; `None` where only the whole tells the order of its items."""
    lists = {}
    for field, items in now.items():
        old = before[field]
        stayed = [key for key in old if key in items]
        if list(items)[: len(stayed)] != stayed:
            return None  # what is put stands last, so this would be read in another order
        put = [item for key, item in items.items() if old.get(key) != item]
        gone = [key for key in old if key not in items]
        lists[field] = {"put": [encode(item) for item in put], "gone": gone}
    return lists


def _changed(event: ev.Event, lists: Mapping[str, Any]) -> dict[str, Any]:
    rest = {
        f.name: encode(getattr(event, f.name))
        for f in dataclasses.fields(event)
        if f.name not in lists
    }
    return {"type": CHANGED, "of": type(event).__name__, "lists": lists, "rest": rest}


def _figures(before: ev.Event, now: ev.Event) -> list[int] | None:
    """All that can differ between two samples of one topic; `None`: more differs than figures."""
    if isinstance(now, ev.DemandSampled):
        return [now.queued, now.in_flight, now.peak, now.arrivals]
    if not isinstance(now, ev.LoadSampled) or not isinstance(before, ev.LoadSampled):
        return None
    same = [load.replica_id for load in before.loads] == [load.replica_id for load in now.loads]
    return [load.in_flight for load in now.loads] if same else None


def _with_figures(before: ev.Event, figures: list[int]) -> ev.Event:
    if isinstance(before, ev.DemandSampled):
        return ev.DemandSampled(before.model, *figures)
    if isinstance(before, ev.LoadSampled):
        pairs = zip(before.loads, figures, strict=True)
        return ev.LoadSampled(tuple(replace(load, in_flight=n) for load, n in pairs))
    raise Unreadable(f"figures of a {type(before).__name__}")
