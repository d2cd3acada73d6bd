"""Whose a listed machine is, and whether it should be there: pure, from lists and a ledger.

The lists must be older than the ledger: then every machine's intention was written before its
list was made, and a machine of ours that no node stands for is none that is just being launched.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from elasticd.cli.leak_ledger import LedgerView, Node
from elasticd.ops.durations import age
from elasticd.provider import Instance, Offering

OVERDUE = 120.0
"""Seconds after which a machine that is ending should have ended."""


class Verdict(enum.StrEnum):
    """What a machine is to us."""

    KNOWN = "known"
    LEAK = "leak"
    OVERDUE = "overdue"
    FOREIGN = "foreign"
    UNMARKED = "unmarked"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Found:
    """One machine that a pool lists. `node`: the node it was rented for, as far as known."""

    pool: str
    instance: Instance
    verdict: Verdict
    why: str = ""
    node: Node | None = None

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
        why = (
            f"of ledger {owner}; if no other elasticd looks after it, "
            f"`elasticd adopt --ledger {owner}`"
        )
        return Found(pool, instance, Verdict.FOREIGN, why)
    if owner is None or marked is None:
        if holder is not None:
            return _of_node(pool, instance, holder, now)
        lacks = "whose it is" if owner is None else "its node"
        why = f"the provider does not show {lacks} (yet); look again, or at its console"
        return Found(pool, instance, Verdict.UNMARKED, why)
    node = ledger.nodes.get(marked)
    if node is not None:
        return _of_node(pool, instance, node, now)
    if owner != ledger.ledger_id:
        why = f"adopted from ledger {owner}; the daemon makes it a node when it next lists it"
        return Found(pool, instance, Verdict.KNOWN, why)
    return Found(pool, instance, Verdict.LEAK, f"ours, and there is no node {marked} (any more)")


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
