"""Where a controller can be killed: before and after each commit, around each provider call.

A boundary is crossed as one or more *kinds*: a commit that holds a launch and a change of phase is
both. What a process crosses is appended to a file as it happens, so that it is there when the
process is not; the order to die (`Death`) comes by environment.
"""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

VARIABLE = "ELASTICD_SWEEP"

CALLS = ("look-up", "launch", "terminate", "instances", "offerings", "boot log")
"""What a provider is asked. The look-up of a machine by its name is a part of launching."""

CONTENTS = (
    "launch intent",
    "launch answer",
    "terminate intent",
    "terminate answer",
    "notice",
    "boot log read",
    "node requested",
    "node booting",
    "node ready",
    "node draining",
    "node terminating",
    "node gone",
    "replica phase",
    "order to the agent",
    "configuration",
    "scale",
    "reload",
    "down",
    "spend",
    "boot failure",
    "machines listed",
)
"""What a commit can hold, as far as it matters to whoever comes after."""

OTHER = "something else"

KINDS = (
    *(f"{side} commit: {what}" for what in CONTENTS for side in ("before", "after")),
    *(f"{call}: {point}" for call in CALLS for point in ("not sent", "done, answer not seen")),
    *(f"{call}: answered" for call in CALLS if call != "look-up"),
)
"""Every kind that a sweep must have hit. There are others, which need not be."""


@dataclass(frozen=True, slots=True)
class Death:
    """When a process is to die: as it crosses a kind for the n-th time, or any n-th boundary."""

    at: Mapping[str, int] = field(default_factory=dict)
    number: int = 0

    def to_env(self, marks: Path) -> str:
        return json.dumps({"marks": str(marks), **asdict(self)})


@dataclass(frozen=True, slots=True)
class Crossing:
    """One boundary that was crossed: the `number`-th of its process, and for each of its kinds how
    often that was crossed by then. `died`: there the process was killed."""

    number: int
    kinds: Mapping[str, int]
    died: bool


class Boundaries:
    """Counts, writes down, and dies when it is time."""

    def __init__(self, marks: Path, death: Death) -> None:
        self._file = os.open(marks, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._death = death
        self._number = 0
        self._crossed: Counter[str] = Counter()

    @classmethod
    def from_env(cls) -> Boundaries:
        told = json.loads(os.environ[VARIABLE])
        return cls(Path(told["marks"]), Death(told["at"], told["number"]))

    def cross(self, kinds: Iterable[str]) -> None:
        """Perhaps never returns."""
        named = tuple(kinds)
        self._number += 1
        self._crossed.update(named)
        counts = {kind: self._crossed[kind] for kind in named}
        death = self._death
        dies = self._number == death.number or any(
            death.at.get(kind) == count for kind, count in counts.items()
        )
        told = json.dumps({"number": self._number, "kinds": counts, "died": dies})
        os.write(self._file, f"{told}\n".encode())
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)


def crossings(marks: Path) -> list[Crossing]:
    """What the processes that wrote there have crossed, one process after the other."""
    if not marks.exists():
        return []
    lines = marks.read_text(encoding="utf-8").splitlines()
    return [Crossing(**json.loads(line)) for line in lines]


_OF_EVENTS: Mapping[str, str] = {
    "LaunchAnswered": "launch answer",
    "LaunchFailed": "launch answer",
    "TerminateAnswered": "terminate answer",
    "TerminateFailed": "terminate answer",
    "NoticeArrived": "notice",
    "BootLogRead": "boot log read",
    "ScaleHeld": "scale",
    "DownRequested": "down",
    "InstancesListed": "machines listed",
}
_OF_ACTIONS: Mapping[str, str] = {
    "LaunchNode": "launch intent",
    "TerminateNode": "terminate intent",
    "StartReplica": "order to the agent",
    "StopReplica": "order to the agent",
}
_OF_ROWS: Mapping[str, str] = {"spend": "spend", "pool": "boot failure"}


class Contents:
    """Names what commits hold; remembers phases, since a row does not say that its phase is new."""

    def __init__(self) -> None:
        self._phases: dict[str, str] = {}

    def learn(self, rows: Iterable[Any]) -> None:
        """What is there before the first commit."""
        for row in rows:
            self._new_phase(row)

    def of(self, rows: Sequence[Any], entries: Sequence[Any]) -> list[str]:
        """In the order of `CONTENTS`; never empty."""
        found = {part for row in rows for part in self._of_row(row)}
        for entry in entries:
            found |= {part for event in entry.events if (part := _of_event(event))}
            found |= {
                _OF_ACTIONS[action["type"]]
                for action in entry.plan["actions"]
                if action["type"] in _OF_ACTIONS
            }
        return [what for what in CONTENTS if what in found] or [OTHER]

    def _of_row(self, row: Any) -> Iterable[str]:
        if row.kind in _OF_ROWS:
            yield _OF_ROWS[row.kind]
        if self._new_phase(row):
            phase = row.doc["phase"]
            yield f"node {phase}" if row.kind == "node" else "replica phase"

    def _new_phase(self, row: Any) -> bool:
        if row.kind not in ("node", "replica") or row.doc is None:
            return False
        before, self._phases[row.id] = self._phases.get(row.id), row.doc["phase"]
        return before != row.doc["phase"]


def _of_event(event: Mapping[str, Any]) -> str:
    kind = event["type"]
    if kind == "Configured":
        return "reload" if event["changed"] else "configuration"
    if kind == "Changed" and event["of"] == "InstancesListed":
        return "machines listed"
    return _OF_EVENTS.get(kind, "")


def around(cross: Callable[[Iterable[str]], None], call: str, point: str) -> None:
    """Crosses a boundary of a provider call."""
    cross((f"{call}: {point}",))
