"""`status --why`: the chain of reasons for each model's replicas, and what is in the way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from elasticd.ops.durations import age
from elasticd.ops.status_departures import departures_of
from elasticd.ops.status_money import money_problems, share, spend_line
from elasticd.ops.status_observing import observing
from elasticd.ops.status_problems import Thing, problems, remarks
from elasticd.ops.status_rows import known, node_note, replica_note
from elasticd.ops.status_start import coming_up
from elasticd.ops.text_table import Paint, Style, bullet, clean

_LABEL = 10
_RECENT = 10


def explain(status: Thing, models: Sequence[Thing], width: int, paint: Paint) -> list[str]:
    """Every model of `models`, which are of `status`, in lines of text. What concerns them all
    comes first: that nothing is acted on, or that no model is known."""
    lines: list[str] = []
    for model in models:
        lines += ["", *_model(status, model, width, paint)]
    return [*observing(status, width, paint), *(lines[1:] or ["no model is known"])]


def _model(status: Thing, model: Thing, width: int, paint: Paint) -> Iterator[str]:
    counts = ", ".join(
        f"{known(model.get(key))} {word}"
        for key, word in (
            ("ready", "ready"),
            ("starting", "starting"),
            ("pending", "waiting for a node"),
            ("draining", "draining"),
        )
        if model.get(key) is None or model[key] or key == "ready"
    )
    name = paint(clean(model["name"]), Style.BOLD)
    yield f"{name}: wants {known(model.get('wanted'))}; {counts}"
    for label, texts in _chapters(status, model):
        for number, text in enumerate(texts):
            mark = f"  {label if number == 0 else '':<{_LABEL}}"
            yield from bullet(mark, text, width)


def _chapters(status: Thing, model: Thing) -> Iterator[tuple[str, list[str]]]:
    name = model["name"]
    load = (
        f"{known(model.get('queued'))} queued, {known(model.get('in_flight'))} in flight, "
        f"counted {age(model.get('demand_age'))} ago"
    )
    yield "load", [load]
    yield "because", [clean(reason) for reason in model.get("reasons", ())] or ["not decided yet"]
    own = f"model {name}: "
    yield "but", [text.removeprefix(own) for text in _about(problems(status), own)]
    yield "still", [text.removeprefix(own) for text in _about(coming_up(status), own)]
    yield "also", [text.removeprefix(own) for text in _about(remarks(status), own)]
    yield "waits", list(_waiting(status, name))
    yield "pools", list(_pools(status, model))
    yield "costs", list(_costs(status, model))
    yield "left", list(departures_of(status, name))
    yield "lately", list(_lately(status, name))


def _about(sentences: Iterator[str], start: str) -> Iterator[str]:
    """Sentences that begin so, with the lines that belong to them."""
    belongs = False
    for text in sentences:
        belongs = text.startswith(start) or (belongs and text.startswith(" "))
        if belongs:
            yield text


def _waiting(status: Thing, name: str) -> Iterator[str]:
    at = status.get("at")
    nodes = {node["id"]: node for node in status.get("nodes", ())}
    for replica in status.get("replicas", ()):
        if replica["model"] != name or replica["phase"] in ("ready", "stopped"):
            continue
        where = replica.get("node_id") or ""
        note = replica_note(replica, at) or replica["phase"]
        node: dict[str, Any] = nodes.get(where, {})
        on = f" on {where}" if where else ""
        coming = node.get("phase") in ("requested", "booting")
        more = f"; the node: {node_note(node)}" if coming else ""
        yield f"{replica['id']}{on}: {note}{more}"


def _pools(status: Thing, model: Thing) -> Iterator[str]:
    """Where it could get machines from, if something is wrong there or machines are coming."""
    wanted = model.get("pools")
    for pool in status.get("pools", ()):
        if wanted and pool["name"] not in wanted:
            continue
        start = f"pool {pool['name']}: "
        sentences = (*problems(status), *remarks(status))
        told = [text.removeprefix("pool ") for text in _about(iter(sentences), start)]
        coming = [
            node
            for node in status.get("nodes", ())
            if node.get("pool") == pool["name"] and node["phase"] in ("requested", "booting")
        ]
        yield from told
        if coming:
            what = "1 machine is" if len(coming) == 1 else f"{len(coming)} machines are"
            yield f"{pool['name']}: {what} on the way"


def _costs(status: Thing, model: Thing) -> Iterator[str]:
    """Its own share, each pool's it may run in, and what caps them all."""
    spend: Thing = status.get("spend") or {}
    if not spend:
        return
    currency = spend.get("currency")
    own = (spend.get("models") or {}).get(model["name"])
    if own is not None:
        yield share(own, currency)
    wanted = model.get("pools")
    for name, pool in (spend.get("pools") or {}).items():
        if not wanted or name in wanted:
            yield f"pool {clean(name)}: {share(pool, currency)}"
    yield f"all machines: {spend_line(spend)}"
    yield from (text.removeprefix("spend: ") for text in money_problems(status))


def _lately(status: Thing, name: str) -> Iterator[str]:
    at = status.get("at")
    about = {f"model:{name}"}
    about |= {f"replica:{r['id']}" for r in status.get("replicas", ()) if r["model"] == name}
    entries = [entry for entry in status.get("recent", ()) if entry.get("subject") in about]
    for entry in entries[-_RECENT:]:
        when = entry.get("at")
        ago = age(at - when) if at is not None and when is not None else "?"
        subject = str(entry["subject"]).removeprefix("replica:").removeprefix(f"model:{name}")
        who = f"{subject}: " if subject else ""
        yield f"{ago} ago: {who}{clean(entry.get('text'))}"
