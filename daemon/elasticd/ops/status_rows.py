"""Rows of the status tables: each thing of a status with its figures, and a note in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elasticd.ops.durations import age
from elasticd.ops.status_money import money
from elasticd.ops.text_table import Column, Row, Style, clean

Thing = Mapping[str, Any]

MODEL_COLUMNS = (
    Column("Model", least=16),
    Column("Ready", right=True),
    Column("Starting", right=True),
    Column("Draining", right=True),
    Column("Queue", right=True),
    Column("In flight", right=True),
    Column("Seen", right=True),
)
NODE_COLUMNS = (
    Column("Node", least=14),
    Column("Phase"),
    Column("Pool", least=8),
    Column("GPUs"),
    Column("Market"),
    Column("Price/h", right=True),
    Column("Age", right=True),
    Column("Seen", right=True),
)
REPLICA_COLUMNS = (
    Column("Replica", least=14),
    Column("Model", least=12),
    Column("Node", least=14),
    Column("Phase"),
    Column("For", right=True),
    Column("Seen", right=True),
)

_NOTE_LENGTH = 200
_STYLES = {
    "ready": Style.GOOD,
    "requested": Style.BUSY,
    "booting": Style.BUSY,
    "pending": Style.BUSY,
    "fetching": Style.BUSY,
    "starting": Style.BUSY,
    "draining": Style.BUSY,
    "terminating": Style.QUIET,
    "stopped": Style.QUIET,
    "gone": Style.QUIET,
}


def model_row(model: Thing) -> Row:
    """Counts, and the chain of reasons for the number that is wanted."""
    ready, wanted = model.get("ready"), model.get("wanted")
    enough = ready is not None and wanted is not None and ready >= wanted
    figures = [model.get("draining"), model.get("queued"), model.get("in_flight")]
    waits = (model.get("starting") or 0) + (model.get("pending") or 0)
    cells = (
        clean(model["name"]),
        f"{known(ready)}/{known(wanted)}",
        str(waits),
        *(known(figure) for figure in figures),
        age(model.get("demand_age")),
    )
    why = " → ".join(clean(reason) for reason in model.get("reasons", ()))
    return Row(cells, ((1, Style.GOOD if enough else Style.BUSY),), why)


def node_row(node: Thing) -> Row:
    """What it is, what it costs, how far it is."""
    phase = str(node["phase"])
    gpus = f"{known(node.get('gpus_used'))}/{known(node.get('gpus'))} {node.get('gpu_kind') or ''}"
    cells = (
        str(node["id"]),
        phase,
        clean(node.get("pool")),
        clean(gpus),
        str(node.get("market") or "?").replace("_", "-"),
        price(node),
        age(node.get("age")),
        age(node.get("last_seen_age")),
    )
    return Row(cells, _styled(1, phase), short(node_note(node)))


def replica_row(replica: Thing, at: float | None) -> Row:
    """Where it runs and how far it is."""
    phase = str(replica["phase"])
    cells = (
        str(replica["id"]),
        clean(replica["model"]),
        str(replica.get("node_id") or "–"),
        phase,
        age(phase_age(replica, at)),
        age(replica.get("last_seen_age")),
    )
    return Row(cells, _styled(3, phase), short(replica_note(replica, at)))


def node_note(node: Thing) -> str:
    """What it is waiting for, or why it goes."""
    phase = node["phase"]
    if phase in ("requested", "booting"):
        doing = node.get("boot") or node.get("trouble") or node.get("reason") or phase
        # What a boot usually takes is counted from the order on.
        return f"{clean(doing)}{_progress(node, node.get('age'))}"
    if phase == "draining" and node.get("seconds_left") is not None:
        return f"goes in {age(node['seconds_left'])}; {clean(node.get('reason'))}"
    if phase == "ready":
        told = (*(node.get("held") or ()), *filter(None, [node.get("hint")]))
        return "; ".join(clean(text) for text in told)
    return clean(node.get("reason"))


def replica_note(replica: Thing, at: float | None) -> str:
    """What it is waiting for, or why it ends."""
    phase = replica["phase"]
    if phase in ("starting", "fetching"):
        doing = clean(replica.get("load_phase")) or phase
        return f"{doing}{_progress(replica, phase_age(replica, at))}"
    if phase == "pending":
        told = replica.get("cause") or replica.get("waits_for")
        return clean(told) or "waits for a node"
    return clean(replica.get("cause"))


def ended_line(thing: Thing, at: float | None) -> tuple[str, str]:
    """An ended node or replica: how long ago, and a sentence with the reason."""
    ago = thing.get("ended_age")
    ago = phase_age(thing, at) if ago is None else ago
    if "model" in thing:
        where = f" on {thing['node_id']}" if thing.get("node_id") else ""
        who = f"replica {thing['id']} of {clean(thing['model'])}{where}"
        why = clean(thing.get("cause"))
    else:
        market = str(thing.get("market") or "?").replace("_", "-")
        who = f"node {thing['id']} (pool {clean(thing.get('pool'))}, {market})"
        why = clean(thing.get("reason"))
    return f"{age(ago)} ago", f"{who}: {why or 'the reason is not known'}"


def phase_age(thing: Thing, at: float | None) -> float | None:
    """Seconds in its present phase; `None`: not known."""
    told: float | None = thing.get("phase_age")
    if told is not None:
        return told
    since = thing.get("since")
    return None if since is None or at is None else at - since


def price(node: Thing) -> str:
    """Rent per hour; unknown is a question mark and not free."""
    micros = node.get("price_micros")
    return "?" if micros is None else money(micros, node.get("currency"))


def known(value: Any) -> str:
    """A figure, or a question mark."""
    return "?" if value is None else str(value)


def short(text: str) -> str:
    """Bearable length; `--json` has the whole."""
    return text if len(text) <= _NOTE_LENGTH else text[: _NOTE_LENGTH - 1] + "…"


def _styled(position: int, phase: str) -> tuple[tuple[int, Style], ...]:
    style = _STYLES.get(phase)
    return () if style is None else ((position, style),)


def _progress(thing: Thing, spent: float | None) -> str:
    """`, 34s of usually ~1m`, as far as it is known."""
    if spent is None:
        return ""
    usual = thing.get("usual")
    return f", {age(spent)}" + (f" of usually ~{age(usual)}" if usual else "")
