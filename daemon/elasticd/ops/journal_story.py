"""A journal entry as people read it: what happened, and what was decided for it.

Facts that repeat themselves (lists, samples, reports of the agent) tell nothing by themselves:
what they changed stands in the reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from elasticd.ops.admin_ports import JournalEntry
from elasticd.ops.journal_recovery import Troubles
from elasticd.ops.text_table import clean

_Fact = Mapping[str, Any]


def tell(entry: JournalEntry, troubles: Troubles | None = None) -> dict[str, Any] | None:
    """JSON-able: `facts` that happened, then the `lines` that were decided; `None`: neither.

    A fact is `echoed` if one of the lines says the same. `troubles` is the reader's, over all
    entries; without it nothing is said to answer again.
    """
    lines = [
        {"subject": str(reason.get("subject", "")), "text": clean(reason.get("text"))}
        for reason in entry.plan.get("reasons", ())
    ]
    facts = list(_facts(entry, lines, Troubles() if troubles is None else troubles))
    if not facts and not lines:
        return None
    return {
        "seq": entry.seq,
        "at": entry.at,
        "epoch": entry.epoch,
        "facts": facts,
        "lines": lines,
    }


def _facts(
    entry: JournalEntry, lines: Sequence[Mapping[str, str]], troubles: Troubles
) -> Iterator[dict[str, Any]]:
    troubles.begin(entry.epoch)
    for fact in entry.events:
        if troubles.too_early(fact, entry.at):
            continue
        kind = str(fact.get("type"))
        for subject, text in troubles.over(fact, entry.at):
            yield {"type": kind, "subject": subject, "text": clean(text), "echoed": False}
        words = _WORDS.get(kind)
        if words is None:
            continue
        try:
            subject, text = words(fact)
        except (KeyError, TypeError, ValueError):
            # Written by another version of elasticd: that it happened is still worth telling.
            subject, text = kind, "happened, as another version of elasticd wrote it down"
        echoed = _is_echoed(fact, subject, lines)
        yield {"type": kind, "subject": subject, "text": clean(text), "echoed": echoed}


def _is_echoed(fact: _Fact, subject: str, lines: Sequence[Mapping[str, str]]) -> bool:
    """Whether a reason tells of the same wish: it names who had it, or what was changed."""
    mark = clean(fact.get("by") or ", ".join(fact.get("changed") or ()))
    return bool(mark) and any(line["subject"] == subject and mark in line["text"] for line in lines)


def _node(fact: _Fact) -> str:
    return f"node:{fact['node_id']}"


def _failed(fact: _Fact) -> str:
    return f"{fact['error']}: {fact['message']}"


def _configured(fact: _Fact) -> tuple[str, str]:
    spec = fact["spec"]
    models = ", ".join(model["name"] for model in spec["models"]) or "none"
    pools = ", ".join(pool["name"] for pool in spec["pools"]) or "none"
    # A reload is the fleet's matter, as what was decided about it.
    subject = "fleet" if fact.get("changed") else f"cluster:{spec['cluster']}"
    return subject, f"configuration taken: models {models}; pools {pools}"


def _list_failed(fact: _Fact) -> tuple[str, str]:
    return f"pool:{fact['pool']}", f"{fact['what']} could not be listed: {_failed(fact)}"


def _launched(fact: _Fact) -> tuple[str, str]:
    return _node(fact), f"the provider gave machine {fact['instance']['instance_id']}"


def _launch_failed(fact: _Fact) -> tuple[str, str]:
    how = "refused" if fact["definite"] else "not answered clearly, will be repeated"
    return _node(fact), f"launch {how}: {_failed(fact)}"


def _terminated(fact: _Fact) -> tuple[str, str]:
    # An orphan has no node: then the machine itself is the subject.
    subject = _node(fact) if fact["node_id"] else f"machine:{fact['instance_id']}"
    if fact["gone"]:
        return subject, f"the provider confirms that machine {fact['instance_id']} is gone"
    return subject, f"the provider is ending machine {fact['instance_id']}"


def _terminate_failed(fact: _Fact) -> tuple[str, str]:
    subject = _node(fact) if fact["node_id"] else f"machine:{fact['instance_id']}"
    return subject, f"machine {fact['instance_id']} could not be ended: {_failed(fact)}"


def _agent_silent(fact: _Fact) -> tuple[str, str]:
    return "cluster", f"the cluster agent does not answer: {fact['message']}"


def _order_failed(fact: _Fact) -> tuple[str, str]:
    how = "was refused" if fact["definite"] else "did not arrive"
    return f"replica:{fact['replica_id']}", f"the {fact['order']} order {how}: {fact['message']}"


def _broken(fact: _Fact) -> tuple[str, str]:
    text = f"the gateway's connection broke: {fact['message']}"
    return f"replica:{fact['replica_id']}", text


def _moved(fact: _Fact) -> tuple[str, str]:
    text = (
        f"its requests so far: {fact['finished']} finished there, {fact['continued']} continued, "
        f"{fact['restarted']} started again elsewhere, {fact['lost']} lost"
    )
    return f"replica:{fact['replica_id']}", text


def _notice(fact: _Fact) -> tuple[str, str]:
    seconds = fact["seconds_left"]
    left = "no end is set" if seconds is None else f"{seconds:.0f} s left"
    return f"pool:{fact['pool']}", f"{fact['kind']} notice for {fact['instance_id']}, {left}"


def _notice_back(fact: _Fact) -> tuple[str, str]:
    return f"pool:{fact['pool']}", f"notice for {fact['instance_id']} withdrawn"


def _boot_log(fact: _Fact) -> tuple[str, str]:
    lines = fact["lines"]
    told = f"last it printed: {lines[-1]}" if lines else "nothing is known of what it printed"
    return _node(fact), f"boot log read; {told}"


def _adopt(fact: _Fact) -> tuple[str, str]:
    return "fleet", f"machines of ledger {fact['ledger_id']} adopted by {fact['by']}"


def _drain(fact: _Fact) -> tuple[str, str]:
    return _node(fact), f"drain within {fact['seconds']:.0f} s asked by {fact['by']}"


def _drill(fact: _Fact) -> tuple[str, str]:
    notice = fact["notice"]
    when = "at once" if notice is None else f"{notice:g} s after a notice"
    return _node(fact), f"a drill that takes its machine {when} asked by {fact['by']}"


def _undrain(fact: _Fact) -> tuple[str, str]:
    return _node(fact), f"drain taken back by {fact['by']}"


def _held(fact: _Fact) -> tuple[str, str]:
    seconds = fact["seconds"]
    how_long = "until released" if seconds is None else f"for {seconds:.0f} s"
    text = f"held at {fact['replicas']} replicas {how_long} by {fact['by']}"
    return f"model:{fact['model']}", text


def _released(fact: _Fact) -> tuple[str, str]:
    return f"model:{fact['model']}", f"given back to the autoscaler by {fact['by']}"


def _refused(fact: _Fact) -> tuple[str, str]:
    return "fleet", f"reload refused, asked by {fact['by']}: {fact['problem']}"


_WORDS: Mapping[str, Callable[[_Fact], tuple[str, str]]] = {
    "Configured": _configured,
    "ListFailed": _list_failed,
    "LaunchAnswered": _launched,
    "LaunchFailed": _launch_failed,
    "TerminateAnswered": _terminated,
    "TerminateFailed": _terminate_failed,
    "ClusterUnreachable": _agent_silent,
    "ReplicaOrderFailed": _order_failed,
    "EndpointBroken": _broken,
    "RequestsMoved": _moved,
    "GatewayBegan": lambda _: ("fleet", "the gateway has started again"),
    "NoticeArrived": _notice,
    "NoticeTakenBack": _notice_back,
    "DownRequested": lambda fact: ("fleet", f"everything is given back, asked by {fact['by']}"),
    "ServeRequested": lambda fact: ("fleet", f"serving, {fact['by']}"),
    "BootLogRead": _boot_log,
    "AdoptRequested": _adopt,
    "DrainRequested": _drain,
    "DrillRequested": _drill,
    "UndrainRequested": _undrain,
    "ScaleHeld": _held,
    "HoldReleased": _released,
    "ReloadRefused": _refused,
}
