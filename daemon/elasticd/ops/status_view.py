"""The status of a fleet for people: a JSON snapshot in, something to print out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

_GOOD, _BUSY, _BAD, _QUIET = "green", "yellow", "red", "dim"
_ENDED = ("gone", "stopped")
_PHASE_STYLE = {
    "ready": _GOOD,
    "requested": _BUSY,
    "booting": _BUSY,
    "pending": _BUSY,
    "starting": _BUSY,
    "draining": _BUSY,
    "terminating": _QUIET,
    "stopped": _QUIET,
    "gone": _QUIET,
}
_WHOLE = ("Node", "Replica", "Ready", "Age", "For")
_RECENT = 8
_ENDED_SHOWN = 3
"""Ended nodes and replicas in the tables; the JSON has all that the daemon remembers."""
_NOTE_WIDTH = 60
_STALE = 30.0
"""Seconds after which the agent's silence is worth telling; it reports at least every few."""


def render(status: Mapping[str, Any]) -> RenderableType:
    """Headline, models, nodes, replicas, what is wrong, and the last reasons."""
    parts: list[RenderableType] = [_headline(status), _models(status.get("models", ()))]
    if status.get("nodes"):
        parts.append(_nodes(_with_few_ended(status["nodes"])))
    else:
        parts.append(Text("  no machines", style=_QUIET))
    if status.get("replicas"):
        parts.append(_replicas(_with_few_ended(status["replicas"]), status.get("at")))
    parts += [Text(f"! {line}", style=_BAD) for line in problems(status)]
    recent = status.get("recent", ())[-_RECENT:]
    if recent:
        parts.append(Text("Latest decisions", style="bold"))
        parts.append(_decisions(recent, status.get("at")))
    return Group(*parts)


def _with_few_ended(things: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Those that live, then the few that ended last."""
    ended = [thing for thing in things if thing["phase"] in _ENDED]
    ended.sort(key=lambda thing: thing.get("since") or 0.0)
    return [t for t in things if t["phase"] not in _ENDED] + ended[-_ENDED_SHOWN:]


def is_fine(status: Mapping[str, Any]) -> bool:
    """Whether all is well. A fleet that still comes up, or of which too little is known, is not."""
    return not status.get("down") and next(iter(problems(status)), None) is None


def problems(status: Mapping[str, Any]) -> Iterator[str]:
    """What keeps the fleet from being what is wanted, one sentence each."""
    controller = status.get("controller", {})
    for key in ("problem", "ledger_error"):
        if controller.get(key):
            yield f"controller: {controller[key]}"
    yield from _cluster_problems(status)
    for pool in status.get("pools", ()):
        yield from _pool_problems(pool)
    for model in status.get("models", ()):
        yield from _model_problems(model)


def _cluster_problems(status: Mapping[str, Any]) -> Iterator[str]:
    seen = status.get("cluster_seen_age")
    if seen is None:
        yield "the cluster agent has not reported yet"
    elif seen > _STALE:
        yield f"the cluster agent last reported {age(seen)} ago"
    if status.get("cluster_detail"):
        yield f"cluster: {status['cluster_detail']}"


def _pool_problems(pool: Mapping[str, Any]) -> Iterator[str]:
    if pool.get("listed_age") is None:
        yield f"pool {pool['name']}: its machines have not been listed yet"
    if pool.get("foreign"):
        yield f"pool {pool['name']}: machines of this cluster name belong to another ledger"
    for key in ("last_error", "blocked"):
        if pool.get(key):
            yield f"pool {pool['name']}: {pool[key]}"


def _model_problems(model: Mapping[str, Any]) -> Iterator[str]:
    name, wanted = model["name"], model.get("wanted")
    if wanted is None:
        yield f"model {name}: it is not known yet how many replicas it needs"
    elif wanted > 0 and not model.get("ready"):
        yield f"model {name}: no replica is ready"
    if model.get("blocked"):
        yield f"model {name}: {model['blocked']}"
    if model.get("failures"):
        cause = model.get("last_cause") or "cause not known"
        yield f"model {name}: {model['failures']} failed starts in a row, last: {cause}"


def age(seconds: float | None) -> str:
    """A duration in at most two units: `4s`, `12m`, `3h20m`, `2d4h`; unknown is `?`."""
    if seconds is None:
        return "?"
    left = max(0, round(seconds))
    if left < 60:
        return f"{left}s"
    if left < 3600:
        minutes, rest = divmod(left, 60)
        return f"{minutes}m{rest}s" if minutes < 5 and rest else f"{minutes}m"
    hours, rest = divmod(left, 3600)
    if hours < 24:
        return f"{hours}h{rest // 60}m" if rest >= 60 else f"{hours}h"
    days, hours = divmod(hours, 24)
    return f"{days}d{hours}h" if hours else f"{days}d"


def _headline(status: Mapping[str, Any]) -> Text:
    word, style = ("healthy", _GOOD) if is_fine(status) else ("degraded", _BAD)
    if status.get("down"):
        word, style = "going down", _BUSY
    text = Text.assemble((f"{status.get('cluster', '?')}", "bold"), "  ", (word, f"bold {style}"))
    nodes = [n for n in status.get("nodes", ()) if n["phase"] != "gone"]
    rent = _rent(nodes)
    text.append(f"  {len(nodes)} machine{'' if len(nodes) == 1 else 's'}", style=_QUIET)
    text.append(f"  {rent}" if rent else "", style=_QUIET)
    return text


def _rent(nodes: Iterable[Mapping[str, Any]]) -> str:
    """Rent per hour by currency; a machine without a known price is told, not counted as free."""
    sums: dict[str, int] = {}
    unknown = 0
    for node in nodes:
        price = node.get("price_micros")
        if price is None:
            unknown += 1
        else:
            currency = str(node.get("currency") or "")
            sums[currency] = sums.get(currency, 0) + price
    told = [f"{micros / 1e6:.2f} {currency}/h" for currency, micros in sorted(sums.items())]
    return " + ".join(told + ([f"{unknown} of unknown price"] if unknown else []))


def _table(*columns: str, right: tuple[str, ...] = ()) -> Table:
    """A table with these columns; those in `right` hold figures."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), header_style="bold")
    for name in columns:
        table.add_column(
            name,
            justify="right" if name in right else "left",
            overflow="fold",
            no_wrap=name in _WHOLE,  # what people copy, and figures, stay in one piece
        )
    return table


def _models(models: Sequence[Mapping[str, Any]]) -> Table:
    counts = ("Ready", "Starting", "Draining", "Queue", "In flight")
    table = _table("Model", *counts, "Why", right=counts)
    for model in models:
        ready, wanted = model.get("ready"), model.get("wanted")
        enough = ready is not None and wanted is not None and ready >= wanted
        waits = (model.get("starting") or 0) + (model.get("pending") or 0)
        table.add_row(
            model["name"],
            Text(f"{_known(ready)}/{_known(wanted)}", style=_GOOD if enough else _BUSY),
            _count(waits),
            _count(model.get("draining")),
            _count(model.get("queued")),
            _count(model.get("in_flight")),
            Text(" → ".join(str(reason) for reason in model.get("reasons", ())), style=_QUIET),
        )
    return table


def _nodes(nodes: Sequence[Mapping[str, Any]]) -> Table:
    columns = ("Node", "Phase", "Pool", "GPUs", "Market", "Price/h", "Age", "Note")
    table = _table(*columns, right=("Price/h", "Age"))
    for node in nodes:
        price = node.get("price_micros")
        shown = "?" if price is None else f"{price / 1e6:.2f} {node.get('currency') or ''}".strip()
        phase = str(node["phase"])
        table.add_row(
            node["id"],
            Text(phase, style=_PHASE_STYLE.get(phase, "")),
            node.get("pool", ""),
            f"{_known(node.get('gpus_used'))}/{_known(node.get('gpus'))}"
            f" {node.get('gpu_kind') or ''}".rstrip(),
            str(node.get("market") or "?").replace("_", " "),
            shown,
            age(node.get("age")),
            Text(_short(_note(node)), style=_QUIET),
        )
    return table


def _note(node: Mapping[str, Any]) -> str:
    if node["phase"] in ("requested", "booting"):
        return str(node.get("boot") or node.get("reason") or "")
    left = node.get("seconds_left")
    going = f"goes in {age(left)}; " if left is not None else ""
    return f"{going}{node.get('reason') or ''}"


def _replicas(replicas: Sequence[Mapping[str, Any]], at: float | None) -> Table:
    table = _table("Replica", "Model", "Node", "Phase", "For", "Note", right=("For",))
    for replica in replicas:
        phase = str(replica["phase"])
        since = replica.get("since")
        known = since is not None and at is not None
        note = replica.get("load_phase") if phase == "starting" else replica.get("cause")
        table.add_row(
            replica["id"],
            replica["model"],
            replica.get("node_id") or "–",
            Text(phase, style=_PHASE_STYLE.get(phase, "")),
            age(at - since if known else None),  # type: ignore[operator]
            Text(_short(note), style=_QUIET),
        )
    return table


def _decisions(entries: Sequence[Mapping[str, Any]], at: float | None) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(justify="right", style=_QUIET, no_wrap=True)
    grid.add_column(overflow="fold")
    for entry in entries:
        when = entry.get("at")
        ago = age(at - when) if at is not None and when is not None else "?"
        story = Text.assemble((str(entry["subject"]), "bold"), f"  {entry['text']}")
        grid.add_row(f"  {ago} ago", story)
    return grid


def _short(text: Any) -> str:
    """One line of bearable length; `--json` has the whole."""
    line = " ".join(str(text or "").split())
    return line if len(line) <= _NOTE_WIDTH else line[: _NOTE_WIDTH - 1] + "…"


def _known(value: Any) -> str:
    return "?" if value is None else str(value)


def _count(value: Any) -> Text:
    """A count: zero is quiet, unknown is a question mark."""
    return Text(_known(value), style=_QUIET if value == 0 else "")
