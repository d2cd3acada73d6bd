"""Who may call a provider next: bounded in rate and in number, endings before everything else.

Knows nothing of what a call does. All of it belongs to one pool, so that none waits for another.
"""

from __future__ import annotations

import asyncio
import enum
import math
from collections import Counter, deque


class Turn(enum.Enum):
    """What a call is for. Its value: how many seconds it lets those go first that have less.

    So machines are ended before others are rented, and lists come last, and yet none waits for
    ever: who has waited longer than the difference goes first.
    """

    ENDING = 0.0
    RENTING = 5.0
    READING = 20.0


class CallQueue:
    """`rate` calls a second on average, `burst` at once, of each kind `at_once` under way.

    `take` and `give_back` belong together; a call that nobody waits for any more, because it does
    not even end when it is cancelled, still counts until it ends.
    """

    def __init__(self, rate: float, burst: int, at_once: int) -> None:
        self._interval = 1.0 / rate
        self._slack = (burst - 1) * self._interval
        self._at_once = at_once
        self._next_free = -math.inf
        self._paused_until = -math.inf
        self._waiting: dict[Turn, deque[tuple[float, asyncio.Future[None]]]] = {
            turn: deque() for turn in Turn
        }
        self._under_way: Counter[Turn] = Counter()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """Calls that have not begun."""
        return sum(len(queue) for queue in self._waiting.values())

    @property
    def under_way(self) -> int:
        """Calls that have begun and not ended."""
        return self._under_way.total()

    @property
    def paused_for(self) -> float:
        """Seconds for which nobody is served."""
        return max(0.0, self._paused_until - asyncio.get_running_loop().time())

    def pause(self, seconds: float) -> None:
        """Nobody is served for so long: the provider said so."""
        until = asyncio.get_running_loop().time() + seconds
        self._paused_until = max(self._paused_until, until)

    async def take(self, turn: Turn) -> None:
        """Returns when the call may be made. A place given up while waiting costs nobody else."""
        loop = asyncio.get_running_loop()
        mine: asyncio.Future[None] = loop.create_future()
        self._waiting[turn].append((loop.time() + turn.value, mine))
        self._serve()
        try:
            await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled():  # served and cancelled at once
                self._next_free -= self._interval
                self.give_back(turn)
            raise

    def give_back(self, turn: Turn) -> None:
        """The call has ended."""
        self._under_way[turn] -= 1
        self._serve()

    def _serve(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        loop = asyncio.get_running_loop()
        while (turn := self._next()) is not None:
            now = loop.time()
            due = max(self._next_free, now - self._slack)
            free = max(due, self._paused_until)
            if free > now:
                self._timer = loop.call_at(free, self._serve)
                return
            self._next_free = due + self._interval
            self._under_way[turn] += 1
            self._waiting[turn].popleft()[1].set_result(None)

    def _next(self) -> Turn | None:
        """Whose turn it is; those who have given up are forgotten on the way."""
        first: tuple[float, Turn] | None = None
        for turn, queue in self._waiting.items():
            while queue and queue[0][1].done():
                queue.popleft()
            ready = queue and self._under_way[turn] < self._at_once
            if ready and (first is None or queue[0][0] < first[0]):
                first = (queue[0][0], turn)
        return None if first is None else first[1]
