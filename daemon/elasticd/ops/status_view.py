"""The status of a fleet for people: a JSON snapshot in, lines of text out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from elasticd.ops.durations import age
from elasticd.ops.status_money import rent, spend_line
from elasticd.ops.status_observing import observing
from elasticd.ops.status_pools import orphan_count
from elasticd.ops.status_problems import health, problems, remarks
from elasticd.ops.status_rows import (
    MODEL_COLUMNS,
    NODE_COLUMNS,
    REPLICA_COLUMNS,
    Thing,
    ended_line,
    model_row,
    node_row,
    phase_age,
    replica_row,
)
from elasticd.ops.status_start import coming_up
from elasticd.ops.text_table import Paint, Style, bullet, clean, painted, table

_RECENT = 8
_ENDED_SHOWN = 20
_PROBLEMS_SHOWN = 40
_WHEN = 9
"""Columns for `3h20m ago`."""


def render(status: Thing, width: int, paint: Paint, *, old: bool = False) -> list[str]:
    """Headline, models, nodes, replicas, what has ended, what is wrong, the last reasons.

    `old`: this is how the fleet was, not how it is; nothing is called healthy then.
    """
    at = status.get("at")
    first = observing(status, width, paint)
    lines = [*first, _headline(status, paint, old), *_spend(status, paint, old), ""]
    if status.get("models"):
        lines += table(MODEL_COLUMNS, [model_row(m) for m in status["models"]], width, paint)
    nodes = [node for node in status.get("nodes", ()) if node["phase"] != "gone"]
    if nodes:
        lines += ["", *table(NODE_COLUMNS, [node_row(node) for node in nodes], width, paint)]
    else:
        lines += ["", paint("  no machines", Style.QUIET)]
    replicas = [r for r in status.get("replicas", ()) if r["phase"] != "stopped"]
    if replicas:
        rows = [replica_row(replica, at) for replica in replicas]
        lines += ["", *table(REPLICA_COLUMNS, rows, width, paint)]
    lines += _section("Ended in the last hour", _ended(status, width), paint)
    if not old:
        lines += _section("", list(_told(status, width, paint)), paint)
    recent = [_dated(entry, at) for entry in status.get("recent", ())[-_RECENT:]]
    lines += _section("Latest decisions", list(_dated_lines(recent, width)), paint)
    return lines


def _headline(status: Thing, paint: Paint, old: bool) -> str:
    word = health(status)
    style = {"healthy": Style.GOOD, "degraded": Style.BAD}.get(word, Style.BUSY)
    if old:
        word, style = "LAST KNOWN STATE", Style.BAD
    nodes = [n for n in status.get("nodes", ()) if n["phase"] != "gone"]
    count = f"{len(nodes)} machine{'' if len(nodes) == 1 else 's'}"
    if orphans := orphan_count(status):
        count += f" + {orphans} of no node"
    # What a daemon tells of its spend counts machines of no node, too, and has its own line.
    cost = "" if status.get("spend") else rent(nodes)
    rest = "  ".join(part for part in (count, cost) if part)
    name = paint(clean(status.get("cluster") or "?"), Style.BOLD)
    return f"{name}  {paint(word, style)}  {paint(rest, Style.QUIET)}"


def _spend(status: Thing, paint: Paint, old: bool) -> Iterator[str]:
    told = spend_line(status.get("spend") or {})
    if told:
        yield f"  {paint(f'rent {told}', Style.QUIET)}" if not old else f"  rent then: {told}"


def _ended(status: Thing, width: int) -> list[str]:
    """Nodes and replicas that are no more, the latest first; nodes are never crowded out."""
    at = status.get("at")
    lines: list[str] = []
    for key, phase in (("nodes", "gone"), ("replicas", "stopped")):
        ended = [thing for thing in status.get(key, ()) if thing["phase"] == phase]
        ended.sort(key=lambda thing: _ago(thing, at))
        lines += _dated_lines([ended_line(t, at) for t in ended[:_ENDED_SHOWN]], width)
        if len(ended) > _ENDED_SHOWN:
            lines.append(f"  and {len(ended) - _ENDED_SHOWN} more {key}; `--json` has all")
    return lines


def _ago(thing: Thing, at: float | None) -> float:
    known = thing.get("ended_age")
    known = phase_age(thing, at) if known is None else known
    return 0.0 if known is None else float(known)


def _told(status: Thing, width: int, paint: Paint) -> Iterator[str]:
    """Problems and remarks; a long list is cut where nobody reads on."""
    found = list(problems(status))
    for text in found[:_PROBLEMS_SHOWN]:
        mark = "    |" if text.startswith(" ") else "!"
        yield from painted(bullet(mark, text, width), Style.BAD, paint)
    if len(found) > _PROBLEMS_SHOWN:
        yield paint(f"! and {len(found) - _PROBLEMS_SHOWN} more; `--json` has all", Style.BAD)
    for text in coming_up(status):
        yield from painted(bullet("…", text, width), Style.BUSY, paint)
    for text in remarks(status):
        yield from bullet("-", text, width)


def _dated(entry: Thing, at: float | None) -> tuple[str, str]:
    when = entry.get("at")
    ago = age(at - when) if at is not None and when is not None else "?"
    return f"{ago} ago", f"{clean(entry.get('subject'))}: {clean(entry.get('text'))}"


def _dated_lines(entries: Iterable[tuple[str, str]], width: int) -> Iterator[str]:
    for ago, text in entries:
        yield from bullet(f"  {ago:>{_WHEN}} ", text, width)


def _section(title: str, lines: Sequence[str], paint: Paint) -> list[str]:
    if not lines:
        return []
    return ["", *([paint(title, Style.BOLD)] if title else []), *lines]
