"""What listeners hear, in the words that all clouds share."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

INTERRUPTION, REBALANCE, MAINTENANCE = "interruption", "rebalance", "maintenance"


class Unknown(Exception):
    """No answer that says anything: neither that there is a notice nor that there is none."""


class Garbled(Unknown):
    """There was an answer, and it is none of those that the cloud gives."""


class SwitchedOff(Exception):
    """Nothing can ever be heard here; the message says why."""


@dataclass(frozen=True, slots=True)
class Notice:
    """This machine will go, or may. The id is made from the content, so repeats are equal.

    `ends_at`: by this machine's monotonic clock, in seconds; `None`: nobody knows when, or whether.
    """

    notice_id: str
    kind: str
    ends_at: float | None

    @property
    def seconds_left(self) -> float | None:
        """From now on, never below 0; `None`: not known."""
        return None if self.ends_at is None else max(0.0, self.ends_at - time.monotonic())


@dataclass(frozen=True, slots=True)
class Heard:
    """All notices that hold, as far as is known.

    `complete`: everything has been answered at least once, so that what is missing does not hold.
    `trouble`: what was not answered this time. `rest`: seconds before it makes sense to ask again.
    """

    notices: tuple[Notice, ...]
    complete: bool
    rest: float
    trouble: str = ""


class Listener(Protocol):
    """One thing to ask of a metadata service."""

    @property
    def name(self) -> str:
        """For people, and different from that of the others."""

    def listen(self) -> Heard:
        """Asks once; may block for as long as its cloud lets it wait.

        Raises `Unknown` or `SwitchedOff`.
        """
