"""Machines that a ledger has and a list lacks: an empty list is no proof that nothing runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from elasticd.cli.leak_ledger import LedgerView, Node
from elasticd.provider import Instance


def not_listed(
    ledger: LedgerView,
    listed: Mapping[str, Sequence[Instance]],
    asked_at: float,
    *,
    daemon_acts: bool,
) -> Iterator[str]:
    """One sentence for each. `listed`: what each pool told; `asked_at`: when it was asked, seconds
    since 1970; `daemon_acts`: a daemon makes sure by itself that what it ends has ended."""
    machines = {one.instance_id for told in listed.values() for one in told}
    nodes = {one.node_id for told in listed.values() for one in told}
    for node in ledger.living():
        if node["pool"] not in listed or not node["instance_id"]:
            continue  # told as a pool that is not known, or a launch that has no answer yet
        if node["instance_id"] in machines or node["id"] in nodes:
            continue
        if not _is_awaited(node, asked_at, daemon_acts=daemon_acts):
            yield (
                f"{node['id']} ({node['instance_id']}, {node['phase']}): not in the list of pool "
                f"{node['pool']}; whether it runs is not known"
            )


def _is_awaited(node: Node, asked_at: float, *, daemon_acts: bool) -> bool:
    """Whether the list need not have it: it came after that, or it is just being ended."""
    if node["phase"] == "terminating":
        return daemon_acts
    return node["phase"] == "booting" and float(node["since"]) > asked_at
