"""What is wrong with a pool and with machines that no node stands for, in words for people.

A sold-out offering or a busy provider is the market's daily life: told, and nothing wrong by
itself. What people must see to (quota, credentials, money, versions) is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from elasticd.ops.durations import age
from elasticd.ops.status_money import rent
from elasticd.ops.text_table import clean

Thing = Mapping[str, Any]

_SHOWN = 5

_KINDS: Mapping[str, tuple[str, str]] = {
    "stock": ("sold out", ""),
    "price": (
        "the market asks more than the pool allows",
        "raise its highest price if that is worth it",
    ),
    "throttled": (
        "the provider wants to be asked less often; nothing is bought or ended there until its "
        "machines are listed again",
        "",
    ),
    "quota": (
        "the account may have no more of these",
        "ask the provider for more, or allow other GPU kinds, markets or pools",
    ),
    "auth": (
        "the provider refuses the credentials; nothing is bought there",
        "correct them; `elasticd doctor` tries them",
    ),
    "billing": (
        "the account cannot pay; nothing is bought there",
        "settle it with the provider",
    ),
    "rejected": (
        "the provider does not take what is asked for; nothing is bought there",
        "correct the pool, then `elasticd reload`",
    ),
    "outage": (
        "the provider does not answer; what runs goes on, nothing is bought or ended there",
        "see whether the provider is away or this host's network",
    ),
    "boot": (
        "machines do not become nodes",
        "`elasticd status --json` has their last lines (log_tail)",
    ),
    "versions": (
        "software on its machines does not match; nothing is bought there",
        "bring the versions in step, then `elasticd reload`",
    ),
}
"""By kind of trouble: what it is, and what to do."""

_USUAL = frozenset({"stock", "price", "throttled"})
"""Kinds that pass by themselves."""

_UNTIL = {
    "outage": "until it answers",
    "throttled": "until it answers",
    "rejected": "until a reload",
    "versions": "until a reload",
}


def pool_problems(pool: Thing, *, new: bool = False) -> Iterator[str]:
    """What people must see to. `new`: its controller has just started."""
    name = f"pool {pool['name']}"
    if pool.get("listed_age") is None and not new:
        yield f"{name}: its machines have not been listed yet"
    if told := _foreign(pool):
        yield f"{name}: {told}"
    troubles = pool.get("troubles") or ()
    yield from (f"{name}: {_trouble(t)}" for t in troubles if t.get("kind") not in _USUAL)
    said = [clean(trouble.get("text")) for trouble in troubles]
    for key in ("last_error", "blocked"):
        text = clean(pool.get(key))
        if text and not any(text in other for other in said):
            yield f"{name}: {text}"
    yield from (f"{name}: {clean(sentence)}" for sentence in pool.get("stuck") or ())
    if orphans := [_machine(orphan) for orphan in pool.get("orphans") or ()]:
        yield f"{name}: {_orphans(orphans, acts=not pool.get('observed'))}"


def pool_remarks(pool: Thing) -> Iterator[str]:
    """What passes by itself."""
    for trouble in pool.get("troubles") or ():
        if trouble.get("kind") in _USUAL:
            yield f"pool {pool['name']}: {_trouble(trouble)}"


def unmanaged(status: Thing) -> Iterator[str]:
    """Machines whose pool has left the configuration: nobody can ask for them, and they cost."""
    by_pool: dict[str, list[str]] = {}
    for node in status.get("unmanaged") or ():
        by_pool.setdefault(str(node["pool"]), []).append(str(node["node_id"]))
    for pool, nodes in by_pool.items():
        many = "1 machine" if len(nodes) == 1 else f"{len(nodes)} machines"
        yield (
            f"pool {pool}: not configured any more, and {many} of it may still run and cost money "
            f"({listed(nodes)}); put the pool back with `max_nodes: 0` until they are gone, or end "
            "them at the provider"
        )


def foreign_machines(status: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Machines of our cluster name that another ledger has rented, each with its `pool`."""
    return [
        {"pool": pool["name"], **machine}
        for pool in status.get("pools", ())
        for machine in pool.get("foreign_machines") or ()
    ]


def orphan_count(status: Thing) -> int:
    """Machines of ours that no node stands for."""
    return sum(len(pool.get("orphans") or ()) for pool in status.get("pools", ()))


def listed(names: Sequence[str]) -> str:
    """A few names; how many more there are."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(map(clean, names[:_SHOWN])) + more


def _trouble(trouble: Thing) -> str:
    kind = str(trouble.get("kind"))
    what, advice = _KINDS.get(kind, ("", ""))
    told = ": ".join(part for part in (kind, what, clean(trouble.get("text"))) if part)
    since = f" (for {age(trouble['age'])})" if trouble.get("age") is not None else ""
    left = trouble.get("seconds_left")
    again = _UNTIL.get(kind, "") if left is None else f"tried again in {age(left)}"
    return "; ".join(part for part in (f"{told}{since}", again, advice) if part)


def _foreign(pool: Thing) -> str:
    machines: Sequence[Thing] = pool.get("foreign_machines") or ()
    if not machines:
        told = (
            "machines of this cluster name belong to another ledger" if pool.get("foreign") else ""
        )
    else:
        owners = listed(sorted({str(machine.get("ledger_id")) for machine in machines}))
        one = len(machines) == 1
        many = "1 machine" if one else f"{len(machines)} machines"
        told = (
            f"{many} of this cluster name ({rent(machines)}) {'belongs' if one else 'belong'} to "
            f"another ledger ({owners})"
        )
    if not told:
        return ""
    return (
        f"{told}; nothing is bought or ended there; if no other elasticd looks after them, "
        "`elasticd adopt` takes them over"
    )


def _machine(orphan: Thing | str) -> Thing:
    """An older controller told ids alone."""
    return {"instance_id": orphan} if isinstance(orphan, str) else orphan


def _orphans(orphans: Sequence[Thing], *, acts: bool) -> str:
    """`acts`: whether a controller ends them."""
    one = len(orphans) == 1
    many = "1 machine" if one else f"{len(orphans)} machines"
    lefts = [orphan.get("seconds_left") for orphan in orphans]
    known = [left for left in lefts if left is not None]
    when = f"ended in {age(max(known))}" if len(known) == len(lefts) else "will be ended"
    if held := next((str(o["held"]) for o in orphans if o.get("held")), ""):
        when = f"not ended while {held}"
    if not acts:
        when = "not ended, for the controller only observes; see `elasticd leaks`"
    names = listed([str(orphan["instance_id"]) for orphan in orphans])
    return (
        f"{many} of ours that should not be there ({rent(orphans)}), {when}: {names}; no node "
        f"stands for {'it' if one else 'them'}"
    )
