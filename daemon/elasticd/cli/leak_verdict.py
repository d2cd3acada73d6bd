"""Whose a listed machine is, and whether it should be there: pure, from lists and a ledger.

The lists must be older than the ledger: then every machine's intention was written before its
list was made, and a machine of ours that no node stands for is none that is just being launched.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from elasticd.cli.leak_ledger import LedgerView, Node, life_of
from elasticd.core.reaper import RIVAL
from elasticd.ops.durations import age
from elasticd.provider import Instance, Offering

OVERDUE = 120.0
"""Seconds after which a machine that is ending should have ended."""

RIVAL_SLACK = 60.0
"""Seconds after the beginning of a life in which a launch of the one before may still come."""


NOT_KNOWN_HERE = (
    "of a later state of it, or of another elasticd that uses a copy of it; it is not ended here; "
    "a controller that is started with this ledger ends it as its own: see first that no other "
    "one lives"
)
COPY_IN_USE = (
    "another elasticd acts under a copy of this state directory, or this one is an old copy; see "
    "which of the two is to go on, and stop the other"
)


class Verdict(enum.StrEnum):
    """What a machine is to us."""

    KNOWN = "known"
    LEAK = "leak"
    OVERDUE = "overdue"
    FOREIGN = "foreign"
    RIVAL = "rival"
    UNMARKED = "unmarked"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Found:
    """One machine that a pool lists. `node`: the node it was rented for, as far as known.

    `left_alone`: why this command must not end it, leak or not; empty: nothing keeps it from that.
    `never`: how it shows that this ledger does not know its id.
    """

    pool: str
    instance: Instance
    verdict: Verdict
    why: str = ""
    node: Node | None = None
    left_alone: str = ""
    never: str = ""

    @property
    def price(self) -> tuple[int, str] | None:
        """Millionths per hour and their currency, by the provider, else as it was rented."""
        offering: Offering | None = self.instance.offering
        if offering is not None:
            return offering.price_micros, offering.currency
        if self.node is None or self.node.get("price_micros") is None:
            return None
        return int(self.node["price_micros"]), str(self.node.get("currency") or "")


def judge(listed: Mapping[str, Sequence[Instance]], ledger: LedgerView, now: float) -> list[Found]:
    """Each machine once. `now` in seconds since 1970."""
    found: dict[str, Found] = {}
    for pool, instances in listed.items():
        for instance in instances:
            one = _judge(pool, instance, ledger, now)
            before = found.get(instance.instance_id)
            # Two pools of one account see the same machines: it belongs to its node's pool.
            if before is None or (one.node is not None and one.node.get("pool") == pool):
                found[instance.instance_id] = one
    return _one_machine_a_node(list(found.values()))


def _judge(pool: str, instance: Instance, ledger: LedgerView, now: float) -> Found:
    owner, marked = instance.ledger_id, instance.node_id
    holder = ledger.holder(instance)
    if owner is not None and ledger.problem and not ledger.missing:
        why = f"of ledger {owner}; whether that is this one cannot be read"
        return Found(pool, instance, Verdict.UNKNOWN, why)
    if owner is not None and not ledger.is_ours(owner):
        return foreign(pool, instance, owner)
    if owner is None or marked is None:
        if holder is not None:
            return _of_node(pool, instance, holder, now)
        lacks = "whose it is" if owner is None else "its node"
        why = f"the provider does not show {lacks} (yet); look again, or at its console"
        return Found(pool, instance, Verdict.UNMARKED, why)
    node = ledger.nodes.get(marked)
    if node is not None:
        return _of_node(pool, instance, node, now)
    return _without_node(pool, instance, marked, ledger)


def foreign(pool: str, instance: Instance, owner: str) -> Found:
    """A machine of another ledger."""
    why = (
        f"of ledger {owner}; if no other elasticd looks after it, `elasticd adopt --ledger {owner}`"
    )
    return Found(pool, instance, Verdict.FOREIGN, why)


def _without_node(pool: str, instance: Instance, marked: str, ledger: LedgerView) -> Found:
    """A machine under a name of ours, with the mark of a node that is not known here."""
    owner = str(instance.ledger_id)
    adopted = f"adopted from ledger {owner}; the daemon makes it a node when it next lists it"
    never = _never_given(marked, ledger) if owner == ledger.ledger_id else ""
    proof = never or _rival(marked, instance, ledger)
    if not proof and owner == ledger.ledger_id:
        why = f"ours, and there is no node {marked} (any more)"
        return Found(pool, instance, Verdict.LEAK, why)
    if not proof or f"{owner}{RIVAL}" in ledger.adopted:
        return Found(pool, instance, Verdict.KNOWN, adopted)
    if never:
        return Found(pool, instance, Verdict.UNKNOWN, f"{never}: {NOT_KNOWN_HERE}", never=never)
    return Found(pool, instance, Verdict.RIVAL, f"{proof}; it is not ended here")


def _rival(marked: str, instance: Instance, ledger: LedgerView) -> str:
    """What proves that another controller rented it under a name of ours; empty: nothing does."""
    owner, launched = str(instance.ledger_id), instance.launched_at
    if owner != ledger.ledger_id:
        adopted_at = ledger.adopted_at.get(owner)
        if launched is None or adopted_at is None or launched <= adopted_at + RIVAL_SLACK:
            return ""
        return (
            f"of ledger {owner}, and launched after that was adopted: its elasticd lives; stop "
            "that one, or give it another `cluster`"
        )
    if proof := _launched_elsewhere(marked, launched, ledger):
        return f"of this ledger's id, and {proof}: {COPY_IN_USE}"
    return ""


def _never_given(marked: str, ledger: LedgerView) -> str:
    """Why this ledger knows nothing of this id: what it intends it writes down before it asks."""
    life = life_of(marked, ledger.ledger_id)
    if life is None or not ledger.epoch:
        return ""
    epoch, number = life
    if epoch > ledger.epoch:
        return f"{marked} is of life {epoch}, and this ledger has come to {ledger.epoch}"
    since = ledger.history_since
    if since is not None and epoch >= since and number > ledger.minted.get(epoch, 0):
        return f"this ledger has not given the id {marked}"
    if since is not None and epoch > since and marked not in ledger.launched:
        return f"this ledger has not asked for a machine for {marked}"
    return ""


def _launched_elsewhere(marked: str, launched: float | None, ledger: LedgerView) -> str:
    """Why no life of this ledger can have launched it; empty: one can."""
    life = life_of(marked, ledger.ledger_id)
    if life is None or launched is None or ledger.began is None or life[0] == ledger.epoch:
        return ""
    if launched > ledger.began + RIVAL_SLACK:
        return f"{marked} is of its life {life[0]} and was launched after that had ended"
    return ""


def _of_node(pool: str, instance: Instance, node: Node, now: float) -> Found:
    phase, since = str(node["phase"]), now - float(node["since"])
    reason = f": {node['reason']}" if node.get("reason") else ""
    if phase == "gone":
        why = f"its node {node['id']} ended {age(since)} ago{reason}"
        return Found(pool, instance, Verdict.LEAK, why, node)
    if phase == "terminating" and since > OVERDUE:
        why = (
            f"its node {node['id']} has been ending for {age(since)}{reason}; the daemon goes on "
            "asking, if it runs"
        )
        return Found(pool, instance, Verdict.OVERDUE, why, node)
    return Found(pool, instance, Verdict.KNOWN, f"node {node['id']}, {phase}", node)


def _one_machine_a_node(found: Iterable[Found]) -> list[Found]:
    """Of several machines of one living node, the ones that are too many."""
    by_node: dict[str, list[Found]] = {}
    for one in found:
        living = one.node is not None and one.verdict is not Verdict.LEAK
        key = str(one.node["id"]) if living and one.node is not None else one.instance.instance_id
        by_node.setdefault(key, []).append(one)
    return [judged for group in by_node.values() for judged in _only_its_own(group)]


def _only_its_own(group: list[Found]) -> list[Found]:
    node = group[0].node
    if len(group) == 1 or node is None:
        return group
    if not any(one.instance.instance_id == node["instance_id"] for one in group):
        why = f"one of {len(group)} machines of node {node['id']}; which is its own is not known"
        return [replace(one, verdict=Verdict.UNMARKED, why=why) for one in group]
    why = f"a second machine of node {node['id']}"
    return [
        one
        if one.instance.instance_id == node["instance_id"]
        else replace(one, verdict=Verdict.LEAK, why=why)
        for one in group
    ]
