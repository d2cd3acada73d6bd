"""How Ray ends on one machine, as its watcher sees it. Standard library only."""

from __future__ import annotations

import contextlib
import subprocess
import time
from pathlib import Path

from elasticd.node import leftovers, process_tree

SWEEP_EVERY = 5.0
# What `ray start --block` takes to follow its raylet, when it does.
_FOLLOWS_WITHIN = 5.0


class RayWatch:
    """Of one `ray start --block` that has come up; best made at once, while all of it runs."""

    def __init__(self, ray: subprocess.Popen[str]) -> None:
        self._ray = ray
        self._raylet = _raylet_below(ray.pid)

    def wait_until_over(self, folder: Path) -> str:
        """Until Ray is over and its first process reaped; how it ended, in words.

        Of engines in `folder` whose supervisor was killed nothing may stay on its GPU meanwhile.
        """
        ray = self._ray
        sweep_at = time.monotonic()
        while ray.poll() is None:
            process_tree.reap_orphans(ray.pid)
            if time.monotonic() >= sweep_at:
                process_tree.kill(leftovers.orphans(folder))
                sweep_at = time.monotonic() + SWEEP_EVERY
            if self._has_lost_its_raylet():
                return self._end_the_rest()
            with contextlib.suppress(subprocess.TimeoutExpired):
                ray.wait(1.0)
        return f"Ray ended by itself (exit {ray.returncode})"

    def _has_lost_its_raylet(self) -> bool:
        """Of one that was never found nothing is known."""
        if self._raylet is None:
            self._raylet = _raylet_below(self._ray.pid)
            return False
        pid, started = self._raylet
        return process_tree.start_time(pid) != started

    def _end_the_rest(self) -> str:
        """A raylet that ended in good order, because somebody told it to, is not missed by `ray
        start`: that would stand for ever for a node which Ray does not have."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._ray.wait(_FOLLOWS_WITHIN)
            return f"Ray ended by itself (exit {code})"
        self._ray.kill()
        self._ray.wait()
        return "Ray's node process was ended by somebody else"


def _raylet_below(ray: int) -> tuple[int, int] | None:
    """Ray's own process of this node: its pid and when it started."""
    for pid in process_tree.descendants(ray):
        if process_tree.command(pid).startswith("raylet "):
            started = process_tree.start_time(pid)
            return None if started is None else (pid, started)
    return None
