"""What `elasticd leaks` has found, as text and as JSON, and whether it is fine."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from elasticd.cli.leak_verdict import Found, Verdict
from elasticd.cli.leak_view import as_json, cost, machines
from elasticd.cli.output import paint, width
from elasticd.ops.text_table import bullet, clean, passage


@dataclass(frozen=True, slots=True)
class Daemon:
    """`silence`: why it does not answer; empty: it does."""

    silence: str
    runs: bool


@dataclass(frozen=True, slots=True)
class Report:
    """`unknown`: by pool, why nothing is known. `kept`: by instance id, why it was not ended.

    `asked`: the names under which a list came. `not_asked`: by name that is not configured any
    more, why it could not be asked; no machine of it is known. `may_end`: the ledger can be read.
    """

    found: tuple[Found, ...]
    unknown: Mapping[str, str]
    problems: tuple[str, ...]
    daemon: Daemon
    ended: tuple[str, ...] = ()
    kept: Mapping[str, str] | None = None
    asked: tuple[str, ...] = ()
    not_asked: Mapping[str, str] = field(default_factory=dict)
    may_end: bool = True

    def of(self, *verdicts: Verdict) -> list[Found]:
        """Machines with one of these verdicts."""
        return [one for one in self.found if one.verdict in verdicts]

    @property
    def wrong(self) -> list[Found]:
        """Machines that should not be there, or of which that is not known."""
        return [one for one in self.found if one.verdict is not Verdict.KNOWN]

    @property
    def fine(self) -> bool:
        """Whether every list is there and every machine on it is known."""
        return not (self.wrong or self.unknown or self.problems)


def told(report: Report, *, everything: bool, ending: bool) -> Iterator[str]:
    """The table and what must be said beside it. `everything`: known machines, too; `ending`: what
    can be ended is about to be."""
    now, wrong = time.time(), report.wrong
    shown = list(report.found) if everything else wrong
    if shown:
        yield from machines(shown, now, width(), paint())
        yield ""
    if wrong:
        yield from bullet("!", f"{many(wrong)} to look at: {cost(wrong, now)}", width())
    yield from _notes(report)
    ours = [one for one in report.of(Verdict.LEAK) if not one.left_alone]
    if ours and report.may_end and not ending:
        yield from bullet("-", f"`elasticd leaks --terminate` ends {many(ours)} of ours", width())
    if report.fine:
        yield _no_leaks(report)


def _no_leaks(report: Report) -> str:
    known = report.of(Verdict.KNOWN)
    what = f"{many(known)} listed, all known" if known else "no machine listed"
    if not report.not_asked:
        return f"no leaks: {what}"
    return f"no leaks where it could be asked ({', '.join(map(clean, report.asked))}): {what}"


def _notes(report: Report) -> Iterator[str]:
    for problem in report.problems:
        yield from passage("!", problem, width())
    for pool, why in report.unknown.items():
        yield from bullet("!", f"pool {pool}: what is there is not known: {clean(why)}", width())
    for pool, why in report.not_asked.items():
        yield from bullet("-", f"pool {pool}: {clean(why)}", width())
    known = report.of(Verdict.KNOWN, Verdict.OVERDUE)
    if report.daemon.silence and known:
        how = "does not answer" if report.daemon.runs else "is not running"
        is_or_are = "is" if len(known) == 1 else "are"
        text = (
            f"the daemon {how} and {many(known)} of it {is_or_are} paid for "
            f"({cost(known, time.time())}); {clean(report.daemon.silence)}"
        )
        yield from bullet("!", text, width())


def outcome(report: Report) -> Iterator[str]:
    """What `--terminate` has come to."""
    kept = report.kept or {}
    if report.ended or kept:
        yield f"{len(report.ended)} ended, {len(kept)} not"
    else:
        yield "nothing to end"
    yield from (f"! {name}: {clean(why)}" for name, why in kept.items())
    rest = len(report.wrong) - len(kept)
    if rest:
        yield f"- {rest} more that this command never ends; see above"


def report_json(report: Report, everything: bool) -> dict[str, Any]:
    """Everything, for programs."""
    now = time.time()
    shown: Sequence[Found] = report.found if everything else report.wrong
    known = report.of(Verdict.KNOWN, Verdict.OVERDUE)
    return {
        "fine": report.fine,
        "machines": [as_json(one, now) for one in shown],
        **_sums([as_json(one, now) for one in report.wrong]),
        "known": len(known),
        "asked": list(report.asked),
        "unknown_pools": dict(report.unknown),
        "not_asked": dict(report.not_asked),
        "problems": list(report.problems),
        "daemon": {"answers": not report.daemon.silence, "problem": report.daemon.silence},
        "ended": list(report.ended),
        "not_ended": dict(report.kept or {}),
    }


def _sums(machines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Rent per hour of what should not be there, in millionths by currency."""
    per_hour: dict[str, int] = {}
    for one in machines:
        if one["price_micros"] is not None:
            per_hour[one["currency"]] = per_hour.get(one["currency"], 0) + one["price_micros"]
    unpriced = sum(one["price_micros"] is None for one in machines)
    return {"per_hour": per_hour, "unpriced": unpriced}


def many(found: Sequence[object]) -> str:
    """`1 machine`, `2 machines`."""
    return "1 machine" if len(found) == 1 else f"{len(found)} machines"
