"""What a changed configuration means for the daemon that runs with the old one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from elasticd.settings.configuration import Configuration
from elasticd.settings.document import Problem
from elasticd.settings.fleet import place_of
from elasticd.settings.show import exact

_RESTART = ("gateway.listen", "admin.", "agent.", "ray.")
"""Bound, written down or handed to other processes at start."""

_NEVER = {
    "cluster": "machines, tags and the ledger carry this name; run `elasticd down` first",
    "state_dir": "the ledger of what is rented lies there; run `elasticd down` first",
}
_ABSENT = object()


@dataclass(frozen=True, slots=True)
class Reload:
    """A comparison, as paths: `models[tiny].scaling.max_replicas`, `node_pools[spot]`.

    `changed` takes effect now, `needs_restart` keeps its old value until the process is started
    again. With anything `refused` the new configuration is not taken at all.
    """

    changed: tuple[str, ...] = ()
    needs_restart: tuple[str, ...] = ()
    refused: tuple[Problem, ...] = ()


def compare(
    old: Configuration, new: Configuration, pools_with_machines: Mapping[str, int]
) -> Reload:
    """`pools_with_machines`: how many living machines each pool has."""
    before, after = exact(old), exact(new)
    different = list(_differences(before, after, ""))
    refused = [
        Problem((key,), f"cannot change while elasticd runs ({before[key]} → {after[key]}): {why}")
        for key, why in _NEVER.items()
        if before[key] != after[key]
    ]
    refused += _pools(old, new, pools_with_machines)
    later = tuple(path for path in different if path.startswith(_RESTART))
    taken = tuple(p for p in different if p not in later and p not in _NEVER)
    return Reload(taken, later, tuple(refused))


def _pools(
    old: Configuration, new: Configuration, pools_with_machines: Mapping[str, int]
) -> Iterator[Problem]:
    """Machines must not lose the one provider that can end them."""
    places = {pool.name: index for index, pool in enumerate(new.settings.node_pools)}
    for pool in old.settings.node_pools:
        count = pools_with_machines.get(pool.name, 0)
        if not count:
            continue
        machines = "1 machine" if count == 1 else f"{count} machines"
        first = "set max_nodes: 0 first and wait until they are gone"
        if pool.name not in places:
            yield Problem(("node_pools",), f"pool {pool.name} still has {machines}: {first}")
            continue
        index = places[pool.name]
        now = new.settings.node_pools[index].provider
        if now != pool.provider:
            yield Problem(
                ("node_pools", index, "provider"),
                f"pool {pool.name} still has {machines} of {pool.provider}: {first}, or give the "
                "new pool another name",
            )
        elif (here := place_of(new.settings.node_pools[index], new)) != place_of(pool, old):
            yield Problem(
                ("node_pools", index),
                f"pool {pool.name} still has {machines} elsewhere ({place_of(pool, old)}; now "
                f"{here}): {first}, or give the new pool another name",
            )


def _differences(old: Any, new: Any, path: str) -> Iterator[str]:
    """The smallest paths whose values differ, in the order of the new configuration."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in [*new, *(key for key in old if key not in new)]:
            under = f"{path}.{key}" if path else str(key)
            yield from _differences(old.get(key, _ABSENT), new.get(key, _ABSENT), under)
    elif (old or new) and _named(old) and _named(new):
        ours, theirs = ({entry["name"]: entry for entry in entries} for entries in (old, new))
        for name in [*theirs, *(name for name in ours if name not in theirs)]:
            under = f"{path}[{name}]"
            yield from _differences(ours.get(name, _ABSENT), theirs.get(name, _ABSENT), under)
    elif old != new:
        yield path


def _named(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(entry, Mapping) and "name" in entry for entry in value
    )
