"""Which requests leave a replica that is to go, and when: pure, `left` and times in seconds.

What will be done before the cut stays. What will not goes on elsewhere before it, one after the
other over the time that is left: not all at once at the cut, when the others would have to take
everything together. The longest go first; with luck the shorter ones are done after all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

LAST = 1.0
"""Seconds before the cut at which everything leaves that can."""

_EVIDENCE = 0.5
"""Seconds of answers from which a pace is read."""


@dataclass(frozen=True, slots=True)
class Running:
    """One request on the replica.

    `begun`: its client has a part of the answer; `emitted`: tokens of it in all, `here` those of
    this replica in `seconds`. `most`: tokens of the whole answer at most, `usual` what answers of
    the model usually have; `None`: not known.
    """

    begun: bool = False
    emitted: int = 0
    here: int = 0
    seconds: float = 0.0
    most: int | None = None
    usual: float | None = None


def pace(running: Sequence[Running]) -> float | None:
    """Tokens per second of one stream on this replica, by all that run there; `None`: unknown."""
    seconds = sum(r.seconds for r in running)
    tokens = sum(r.here for r in running)
    return tokens / seconds if seconds >= _EVIDENCE and tokens else None


def needed(running: Running, speed: float | None) -> float:
    """Seconds until the answer is probably complete; infinite where nobody can tell.

    Lengths of answers are all but memoryless: of one that runs, as much is to come as usual.
    """
    bounds = [] if running.most is None else [float(max(0, running.most - running.emitted))]
    if running.usual is not None:
        bounds.append(running.usual)
    if speed is None or not bounds or not running.begun:
        return math.inf
    return min(bounds) / speed


def leaving(running: Sequence[Running], left: float, waited: float) -> list[int]:
    """Indices of those that leave now, `left` before the cut.

    `waited`: since the last one left, or since the replica takes nothing new. What has not begun
    has nothing to lose by waiting: it leaves last, and starts again.
    """
    time = left - LAST
    if time <= 0:
        return list(range(len(running)))
    speed = pace(running)
    needs = {i: needed(r, speed) for i, r in enumerate(running) if r.begun}
    late = sorted((i for i, n in needs.items() if n > time), key=lambda i: -needs[i])
    if not late:
        return []
    pause = (time + waited) / (len(late) + 1)
    return late[: int(waited / pause)]
