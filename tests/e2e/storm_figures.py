"""What is counted in a storm."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Figures:
    """Of all answers after the undisturbed ones."""

    kills: int = 0
    answered: int = 0
    continued: int = 0
    inside: int = 0
    stop: int = 0
    twice: int = 0
    parser: int = 0
    in_tool_call: int = 0
    restarted: int = 0
    doubled: int = 0
    leaked: int = 0
    lost: list[str] = field(default_factory=list)
    differ: list[str] = field(default_factory=list)
    base_asked: int = 0
    base_differ: int = 0
    strikes: list[dict[str, Any]] = field(default_factory=list)
    departures: list[dict[str, Any]] = field(default_factory=list)

    @property
    def so_far(self) -> str:
        """Words for who waits; what goes on beside a long notice is counted at its end."""
        return (
            f"{self.kills} kills, {self.continued} continued, {self.twice} twice, "
            f"{self.restarted} restarted, {len(self.lost)} lost, {len(self.differ)} differ"
        )
