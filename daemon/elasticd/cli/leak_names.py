"""Which account is asked for the machines of which name: each pool's own, and for a name that the
configuration has no more every account that may have been its own."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from elasticd.cli.leak_past import Former, Name, same_place
from elasticd.settings.configuration import Configuration
from elasticd.settings.fleet import place_of


@dataclass(frozen=True, slots=True)
class Asking:
    """One list: of the machines of `name`, with the provider and options of `account`, which is a
    configured pool. `label` tells it from all others, in words; `place`: where that account is."""

    label: str
    name: Name
    account: str
    place: str
    former: bool = False


def askings(config: Configuration, former: Sequence[Former]) -> list[Asking]:
    """Every list that is to be asked for, those of configured pools first."""
    cluster = config.settings.cluster
    own = [
        Asking(pool.name, Name(cluster, pool.name), pool.name, place_of(pool, config))
        for pool in config.settings.node_pools
    ]
    taken = {one.label for one in own}
    more: list[Asking] = []
    for one in former:
        for account in _accounts(config, own):
            if one.places and not _was_there(one, account.place):
                continue
            label = _label(one.name, account.account, cluster, taken)
            taken.add(label)
            more.append(Asking(label, one.name, account.account, account.place, former=True))
    return [*own, *more]


def told_of(name: Name, cluster: str) -> str:
    """A name in words."""
    return name.pool if name.cluster == cluster else f"{name.pool} of cluster {name.cluster}"


def is_covered(former: Former, asked: Sequence[Asking], listed: Collection[str]) -> bool:
    """Whether every place where its machines may be has told what it has."""
    told = [one.place for one in asked if one.name == former.name and one.label in listed]
    known = former.places
    return bool(known) and all(any(same_place(place, there) for there in told) for place in known)


def _accounts(config: Configuration, own: Sequence[Asking]) -> Iterator[Asking]:
    """One pool of each account, as far as their options tell them apart."""
    seen: list[tuple[str, object]] = []
    for one in own:
        account = (one.place, config.options[one.account])
        if account not in seen:
            seen.append(account)
            yield one


def _label(name: Name, account: str, cluster: str, taken: Collection[str]) -> str:
    plain = told_of(name, cluster)
    return plain if plain not in taken else f"{plain} (asked as {account})"


def _was_there(former: Former, place: str) -> bool:
    return any(same_place(known, place) for known in former.places)
