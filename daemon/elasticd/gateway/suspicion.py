"""When a stream's silence speaks against its replica: pure rules, times in seconds of the loop.

A stream is moved long before `idle_timeout` when it is silent far beyond the pace of its replica,
and another replica could go on with it. It is no suspect

* before it has a token, or while nothing is known of its replica's pace: unknown is not zero;
* while its client is slow;
* while all streams of the replica are silent and a prompt that came before could be the reason:
  the longer the prompt, the longer it may take;
* while every other replica is as silent: then it is our own machine, or the network, that is slow.

A replica is *ejected* only if all its streams are silent, and on this evidence alone only one per
model in a while. Silence of one stream says nothing of its replica while others get their tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from elasticd.gateway.failures import ReplicaSilent
from elasticd.gateway.stall import Pulse

FACTOR = 5.0
"""How many times the longest usual gap a silence has to be."""

PROMPT_PACE = 2000.0
"""Bytes of a prompt that even a slow engine reads per second: about 500 tokens."""

APART = 120.0
"""Seconds between two ejections on suspicion within one model: until a replica has taken the first
one's place, a second one would be missed more than a stuck one."""


class Suspicion:
    """Over one stream. `floor`: no shorter silence is suspicious. `may_move`: whether another
    replica could go on, given the silence that would speak against that one, too."""

    __slots__ = ("_floor", "_may_move", "_pulse")

    def __init__(self, pulse: Pulse, floor: float, may_move: Callable[[float], bool]) -> None:
        self._pulse = pulse
        self._floor = floor
        self._may_move = may_move

    def patience(self, now: float) -> float:
        """Seconds of silence that are usual here; infinite while that is not known."""
        pace = self._pulse.pace(now)
        return max(self._floor, FACTOR * pace) if pace else float("inf")

    def judged(self, waited: float, now: float) -> ReplicaSilent | None:
        """Why the stream has to be moved after so many seconds of silence, if it has to."""
        patience = self.patience(now)
        if waited < patience:
            return None
        everywhere = is_silent(self._pulse, patience, now)
        if everywhere and waited < patience + excuse(self._pulse):
            return None
        if not self._may_move(patience):
            return None
        return ReplicaSilent(waited, everywhere=everywhere)

    def next_look(self, waited: float, now: float) -> float:
        """Seconds after which it is worth looking again; soon where it may be known any moment
        whether the stream could go on."""
        patience = self.patience(now)
        return patience - waited if waited < patience < float("inf") else self._floor / 8


def is_silent(pulse: Pulse, patience: float, now: float) -> bool:
    """Whether the replica tells none of its streams anything. Tokens of all streams come in one
    step of the engine: who is silent for half as long is no living proof."""
    return pulse.streams > 0 and now - pulse.heard >= patience / 2


def excuse(pulse: Pulse) -> float:
    """Seconds that the prompts may take which the engine had before it fell silent."""
    earlier = (size for at, size in pulse.asked.values() if at <= pulse.heard + 1.0)
    return sum(earlier) / PROMPT_PACE


def first_sign(pulse: Pulse, size: int, floor: float) -> float:
    """Seconds in which a replica that is to go on with a stream has to tell anybody anything, with
    a prompt of so many bytes: twice the silence that would be suspicious, and all its prompts."""
    waiting = size + sum(size for _, size in pulse.asked.values())
    return 2 * floor + waiting / PROMPT_PACE


class Suspects:
    """Which replica was ejected on suspicion, by model, and when."""

    def __init__(self) -> None:
        self._latest: dict[str, tuple[Hashable, float]] = {}

    def may_eject(self, model: str, replica: Hashable, now: float) -> bool:
        """Whether this one may be; if so, no other one may for a while."""
        who, at = self._latest.get(model, (replica, now))
        if who != replica and now - at < APART:
            return False
        self._latest[model] = (replica, now)
        return True
