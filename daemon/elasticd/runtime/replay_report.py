"""What a replay found, as values; `cli.replay_view` says it in words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from elasticd.core.events import Event


@dataclass(frozen=True, slots=True)
class Difference:
    """A step that was decided otherwise.

    The plans are JSON as in the journal; of a `quiet` step it says only that there was nothing to
    do and nothing to tell. `fault`: the core failed at this step.
    """

    epoch: int
    seq: int
    at: float
    events: tuple[Event, ...]
    quiet: bool
    recorded: dict[str, Any]
    replayed: dict[str, Any]
    fault: str = ""


@dataclass(slots=True)
class Life:
    """One life of the controller, replayed as far as possible.

    `whole`: from its beginning; else from where it was written what the core remembered.
    `decisions`: those of its `steps` that stand in the journal one by one. `since` and `until`:
    the times of the first and the last step, in seconds.
    """

    epoch: int
    core: str
    whole: bool = True
    steps: int = 0
    decisions: int = 0
    differences: int = 0
    since: float | None = None
    until: float | None = None


@dataclass(slots=True)
class Skipped:
    """Entries of one life, one after the other, that were not replayed, and why.

    `damaged`: something is wrong with the journal there.
    """

    epoch: int
    first_seq: int
    last_seq: int
    why: str
    damaged: bool = False


@dataclass(slots=True)
class Report:
    """What came of it so far. `core`: the version that replays. `differences`: the first ones,
    while `Life.differences` counts all. `entries`: how many were read."""

    core: str
    lives: list[Life] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)
    entries: int = 0

    @property
    def steps(self) -> int:
        """Steps that were decided again."""
        return sum(life.steps for life in self.lives)

    @property
    def unequal(self) -> int:
        """Steps that were decided otherwise."""
        return sum(life.differences for life in self.lives)

    @property
    def damaged(self) -> bool:
        """Whether a part of the journal could not be read."""
        return any(part.damaged for part in self.skipped)
