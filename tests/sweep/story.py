"""What became of one life."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.sweep.boundaries import Crossing


@dataclass(slots=True)
class Story:
    """`deaths`: where it died and in which part of the script; `crossed`: every boundary;
    `recovered`: seconds from the last death of a part to its rest; `starts`: from the start of a
    controller to its first answer; `problems`: promises that were broken, in words.

    `machines` were made, `calls` asked of the cloud, `faults` met by them.
    """

    script: str
    deaths: list[tuple[str, Crossing]] = field(default_factory=list)
    crossed: list[Crossing] = field(default_factory=list)
    recovered: list[float] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)
    leaked: list[str] = field(default_factory=list)
    launched_twice: list[str] = field(default_factory=list)
    foreign_touched: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    machines: int = 0
    calls: dict[str, int] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def fine(self) -> bool:
        return not (self.leaked or self.launched_twice or self.foreign_touched or self.problems)

    @property
    def broken(self) -> str:
        """Which promises were not kept."""
        told = {
            "left": self.leaked,
            "launched twice": self.launched_twice,
            "foreign ones touched": self.foreign_touched,
        }
        return "; ".join([*(f"{what} {ids}" for what, ids in told.items() if ids), *self.problems])
