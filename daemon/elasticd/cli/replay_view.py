"""The report of a replay in words, and as JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from elasticd.core.codec import to_json
from elasticd.ops.durations import moment
from elasticd.ops.text_table import clean
from elasticd.runtime.replay_report import Difference, Life, Report, Skipped

_LONGEST = 24
"""Lines of one difference that are shown."""

_WIDEST = 200
"""Characters of one action that is shown whole."""

_NAMES = ("replica_id", "node_id", "model", "instance_id", "name", "machine_type")
"""What names a part of a plan, the first that it has."""


def exit_code(report: Report) -> int:
    """See the command."""
    if report.unequal:
        return 1
    return 2 if report.damaged or not report.lives else 0


def as_json(report: Report) -> dict[str, Any]:
    """Everything that was found."""
    return {
        "equal": exit_code(report) == 0,
        "core": report.core,
        "entries": report.entries,
        "steps": report.steps,
        "decided_otherwise": report.unequal,
        "lives": [
            {
                "epoch": life.epoch,
                "core": life.core,
                "same_core": life.core == report.core,
                "whole": life.whole,
                "since": life.since,
                "until": life.until,
                "steps": life.steps,
                "decisions": life.decisions,
                "decided_otherwise": life.differences,
            }
            for life in report.lives
        ],
        "skipped": [
            {
                "epoch": part.epoch,
                "first_seq": part.first_seq,
                "last_seq": part.last_seq,
                "why": part.why,
                "damaged": part.damaged,
            }
            for part in report.skipped
        ],
        "differences": [
            {
                "epoch": found.epoch,
                "seq": found.seq,
                "at": found.at,
                "quiet": found.quiet,
                "events": [to_json(event) for event in found.events],
                "recorded": found.recorded,
                "replayed": found.replayed,
                "fault": found.fault,
            }
            for found in report.differences
        ],
    }


def render(name: str, report: Report) -> list[str]:
    """The report as lines."""
    lines = [f"{name}: {_many(report.entries, 'entry', 'entries')}, core {report.core}"]
    lines += [_life(life, report.core) for life in report.lives]
    lines += [_skipped(part) for part in report.skipped]
    for found in report.differences:
        lines += ["", *_difference(found)]
    more = report.unequal - len(report.differences)
    if more > 0:
        lines += ["", f"… and {_many(more, 'step')} more that were decided otherwise (--show N)"]
    return [*lines, "", _verdict(report)]


def _verdict(report: Report) -> str:
    if report.unequal:
        other = any(life.core != report.core for life in report.lives if life.differences)
        why = "; another core had decided them, so that is no surprise" if other else ""
        return (
            f"NOT EQUAL: {_many(report.unequal, 'step')} of {report.steps:,} decided otherwise{why}"
        )
    if not report.lives:
        return f"NOTHING REPLAYED. {_advice(report)}".rstrip()
    rest = f" {_advice(report)}" if report.skipped else ""
    return f"EQUAL: {_many(report.steps, 'step')} decided as the journal says.{rest}"


def _advice(report: Report) -> str:
    """What to do about the parts that were skipped."""
    if report.damaged:
        return "Damaged parts were skipped: keep a copy of the file before anything else."
    whys = " ".join(part.why for part in report.skipped)
    if "another core" in whys:
        return "Replay the rest with the elasticd that decided it, or with --anyway."
    if "trimmed" in whys:
        return (
            "Each start of the controller, and each hour of it, begins a part that can be "
            "replayed; what is before the first one is lost. A larger journal reaches further back."
        )
    return "" if report.skipped else "The journal has no entries."


def _life(life: Life, core: str) -> str:
    when = "" if life.since is None else f", {moment(life.since)} to {moment(life.until or 0.0)}"
    by = "" if life.core == core else f", decided by {life.core or 'an unknown core'}"
    result = f"{_many(life.differences, 'difference')}" if life.differences else "equal"
    part = "" if life.whole else " (from what its core remembered)"
    return (
        f"  life {life.epoch}{part}{when}: {_many(life.steps, 'step')}, "
        f"{life.decisions:,} of them in the journal one by one{by}: {result}"
    )


def _skipped(part: Skipped) -> str:
    one = part.first_seq == part.last_seq
    which = f"entry {part.first_seq}" if one else f"entries {part.first_seq} to {part.last_seq}"
    return f"  life {part.epoch}: {which} skipped: {clean(part.why)}"


def _difference(found: Difference) -> Iterator[str]:
    kinds = Counter(type(event).__name__ for event in found.events)
    after = ", ".join(kind if n == 1 else f"{n} {kind}" for kind, n in kinds.items()) or "time"
    where = "among the quiet steps before entry" if found.quiet else "entry"
    yield (
        f"{moment(found.at)}  life {found.epoch}, {where} {found.seq}, after {after}; "
        f"at {found.at!r}"
    )
    if found.fault:
        yield f"  the core failed: {clean(found.fault)}; this life was not followed any further"
        return
    lines = list(_diff(found))
    yield from lines[:_LONGEST]
    if len(lines) > _LONGEST:
        yield f"  … and {len(lines) - _LONGEST} lines more (--json has all of it)"


def _diff(found: Difference) -> Iterator[str]:
    """`-` was decided then, `+` is decided now; what is the same is left out."""
    then, now = found.recorded, found.replayed
    lines = [
        *_changes(_reasons(then), _reasons(now)),
        *_changes(_actions(then, now), _actions(now, then)),
        *_changes([_wake(then, found.at)], [_wake(now, found.at)]),
    ]
    yield from lines or ["  the same, in another order"]


def _changes(then: list[str], now: list[str]) -> Iterator[str]:
    lost, new = Counter(then) - Counter(now), Counter(now) - Counter(then)
    yield from (f"  - {line}" for line in lost.elements())
    yield from (f"  + {line}" for line in new.elements())


def _reasons(plan: Mapping[str, Any]) -> list[str]:
    return [clean(f"{r.get('subject')}: {r.get('text')}") for r in plan.get("reasons", ())]


def _wake(plan: Mapping[str, Any], at: float) -> str:
    if "wake_at" not in plan:
        return ""
    wake = plan["wake_at"]
    return "wakes when told" if wake is None else f"wakes at {wake!r}, {wake - at:.3f} s later"


def _actions(plan: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """One line for an action that the other plan lacks, else one for each of its values."""
    known = {_name(action) for action in other.get("actions", ())}
    lines: list[str] = []
    for action in plan.get("actions", ()):
        name = _name(action)
        if name in known:
            lines += [f"{name}: {path} = {value}" for path, value in _leaves(action)]
        else:
            text = clean(json.dumps(action, ensure_ascii=False))
            lines.append(f"{name}: {text[:_WIDEST]}{'…' if len(text) > _WIDEST else ''}")
    return lines


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Each single value with the way to it, in words."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _leaves(part, f"{path} {key}".strip())
    elif isinstance(value, list) and any(isinstance(part, Mapping) for part in value):
        for part in value:
            yield from _leaves(part, f"{path} {_name(part)}".strip())
    else:
        yield path, clean(json.dumps(value, ensure_ascii=False))


def _name(part: Any) -> str:
    if not isinstance(part, Mapping):
        return ""
    kind = str(part.get("type", ""))
    return next((f"{kind} {part[key]}".strip() for key in _NAMES if key in part), kind)


def _many(count: int, one: str, many: str = "") -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"
