"""What is to be said of names that the configuration has no more: nobody sees to their machines."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from elasticd.cli.leak_ledger import LedgerView
from elasticd.cli.leak_names import Asking, is_covered, told_of
from elasticd.cli.leak_past import Former, Name
from elasticd.settings.configuration import Configuration


@dataclass(slots=True)
class Past:
    """`unknown`: by name, why it is not known what is there, where machines are known to have
    been. `problems`: machines that were found. `not_asked`: by name, where nobody could be asked
    and no machine is known of."""

    unknown: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    not_asked: dict[str, str] = field(default_factory=dict)


def past_of(
    config: Configuration,
    former: Sequence[Former],
    asked: Sequence[Asking],
    listed: Collection[str],
    ledger: LedgerView,
) -> Past:
    """`listed`: the labels under which a list came."""
    cluster, past = config.settings.cluster, Past()
    living = _living(ledger, cluster)
    pools = {pool.name for pool in config.settings.node_pools}
    names = {one.name: one for one in former}
    for name in living:
        if name.cluster != cluster or name.pool not in pools:
            names.setdefault(name, Former(name))
    for name, one in sorted(names.items()):
        label, covered = told_of(name, cluster), is_covered(one, asked, listed)
        elsewhere = name.cluster == cluster and name.pool in pools
        nodes = "" if elsewhere and not one.moved else ", ".join(living.get(name, ()))
        why = "the configuration points elsewhere" if elsewhere else "not configured any more"
        if nodes and covered:
            past.problems.append(
                f"pool {label}: {why}, and the ledger has machines there that nobody ends now: "
                f"{nodes}; put it back with `max_nodes: 0` until they are gone"
            )
        elif nodes:
            past.unknown[label] = (
                f"{why}, and the ledger has machines there: {nodes}; {_where(one)}; put it back"
            )
        elif not covered:
            past.not_asked[label] = (
                f"{why}; {_where(one)}; the ledger knows of no machine there now; to be sure put "
                "it back and look again, or look at the provider's console"
            )
    return past


def _living(ledger: LedgerView, cluster: str) -> Mapping[Name, list[str]]:
    """Nodes that may have a machine, by the name under which it was rented."""
    found: dict[Name, list[str]] = {}
    for node in ledger.living():
        name = Name(ledger.cluster or cluster, str(node["pool"]))
        found.setdefault(name, []).append(str(node["id"]))
    return found


def _where(one: Former) -> str:
    if not one.places:
        return "at which provider it was is not known, so not every one can be asked"
    return f"it was at {' and at '.join(sorted(one.places))}, which no configured pool can ask now"
