"""Listens for this machine's notices, in threads of its own. Standard library only.

Who is asked and does not answer is asked on, at growing distances that stay short beside a
notice: one that is seen two minutes late is no notice any more.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence

from elasticd.node.metadata import Heard, Listener, Notice, SwitchedOff, Unknown, listeners

FIRST_PAUSE = 2.0
LONGEST_PAUSE = 15.0
DEAF_AFTER = 3
"""So many failures in a row until people are told that nothing is heard."""

Tell = Callable[[tuple[Notice, ...], bool], None]
"""Takes all notices that hold, and whether that is complete."""


class NoticeWatch:
    """`tell` gets each change; `say` is for people, once for each trouble and its end; `rest`
    waits so many seconds."""

    def __init__(
        self,
        listeners: Sequence[Listener],
        tell: Tell,
        say: Callable[[str], None],
        rest: Callable[[float], object] | None = None,
    ) -> None:
        self._listeners = listeners
        self._tell = tell
        self._say = say
        self._lock = threading.Lock()
        self._heard: dict[str, Heard] = {}
        self._ending = threading.Event()
        self._rest = self._ending.wait if rest is None else rest
        self._threads = [
            threading.Thread(
                target=self._run, args=(each,), name=f"listen-{each.name}", daemon=True
            )
            for each in listeners
        ]

    def start(self) -> None:
        """Begins to listen."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Nothing more is told; a question that hangs is not waited for."""
        self._ending.set()

    def _run(self, listener: Listener) -> None:
        failures = 0
        while not self._ending.is_set():
            try:
                heard = listener.listen()
            except SwitchedOff as off:
                self._say(f"notices: {off}")
                return
            except Unknown as unknown:
                trouble, rest = str(unknown), pause_after(failures + 1)
            except Exception as fault:  # a fault of ours must not leave the machine deaf
                trouble, rest = f"{listener.name}: {fault!r}", LONGEST_PAUSE
            else:
                trouble, rest = heard.trouble, heard.rest
                self._put(listener.name, heard)
            failures = self._count(failures, trouble)
            self._rest(rest)

    def _put(self, name: str, heard: Heard) -> None:
        with self._lock:
            self._heard[name] = heard
            all_heard = [
                self._heard[each.name] for each in self._listeners if each.name in self._heard
            ]
            complete = len(all_heard) == len(self._listeners) and all(h.complete for h in all_heard)
            if not self._ending.is_set():
                self._tell(tuple(n for h in all_heard for n in h.notices), complete)

    def _count(self, failures: int, trouble: str) -> int:
        if not trouble:
            if failures >= DEAF_AFTER:
                self._say("notices: heard again")
            return 0
        if failures + 1 == DEAF_AFTER:
            self._say(f"notices: not heard, which is not 'none'; asking on: {trouble}")
        return failures + 1


def pause_after(failures: int) -> float:
    """Seconds before the next try, spread so that a fleet does not ask in step."""
    longest = min(FIRST_PAUSE * 2.0 ** min(failures - 1, 10), LONGEST_PAUSE)
    return longest * random.uniform(0.75, 1.0)


def watch_for(
    source: str, url: str, node_id: str, tell: Tell, say: Callable[[str], None]
) -> NoticeWatch:
    """The watch of a machine whose pool names `source`; empty: of one that hears nothing.

    One that cannot listen says so and serves all the same.
    """
    try:
        found = listeners(source, url, node_id) if source else ()
    except ValueError as unusable:
        say(str(unusable))
        found = ()
    return NoticeWatch(found, tell, say)
