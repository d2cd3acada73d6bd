"""Processes of engines whose supervisor was killed: known again, and ended.

An engine hides its processes without meaning to: it closes inherited descriptors, starts sessions
of its own, and by renaming a process overwrites the environment in which our mark stood (vLLM
does). So they are known by either of two signs: the mark, or the session number that the supervisor
wrote down together with the score that every process of an engine inherits. That finds everything
but a process that left the session *and* renamed itself.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from elasticd.node import process_tree

MARKER = "ELASTICD_ENGINE"
# The kernel's memory killer takes engines before Ray, the agent and the daemon. An odd number, so
# that nobody else has it by chance: it is a mark that renaming does not touch.
OOM_SCORE = 533
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def node_folder(environ: Mapping[str, str]) -> Path:
    """Where one machine's watcher and engines keep their files."""
    return Path(environ.get("ELASTICD_NODE_DIR") or Path.home() / ".elasticd-node").absolute()


def mark(folder: Path, supervisor: int) -> str:
    """The value of `MARKER` for engines of this supervisor. The folder names the machine."""
    return f"{folder}:{supervisor}:{process_tree.start_time(supervisor)}"


@dataclass(frozen=True, slots=True)
class EngineSession:
    """One engine's session, as its supervisor writes it down.

    Process ids mean something in one boot and one PID namespace only; `world` names both.
    """

    world: str
    supervisor: int
    supervisor_started: int | None
    session: int
    session_started: int | None

    @classmethod
    def of(cls, engine: int) -> EngineSession:
        """Of the engine that this process has just started as a session leader."""
        me = os.getpid()
        return cls(
            _world(), me, process_tree.start_time(me), engine, process_tree.start_time(engine)
        )

    def save(self, folder: Path) -> Path:
        """Writes it below `folder`; the supervisor removes the file when all of it is gone."""
        directory = folder / "engines"
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = directory / f"{self.supervisor}-{self.supervisor_started}"
        draft = path.with_name(f".{path.name}")
        draft.write_text(json.dumps(asdict(self)))
        draft.replace(path)
        return path

    @property
    def guarded(self) -> bool:
        """Whether the supervisor lives and will see to it."""
        started = process_tree.start_time(self.supervisor)
        return started is not None and started == self.supervisor_started

    def members(self) -> list[int]:
        """What still runs of it. A session number is free again only when all of it is gone."""
        if self.world != _world() or self.guarded:
            return []
        leader = process_tree.start_time(self.session)
        if leader is not None and leader != self.session_started:
            return []  # somebody else's session has the number now
        return [pid for pid in process_tree.session(self.session) if _is_ours(pid)]


def orphans(folder: Path) -> set[int]:
    """Living processes of engines in `folder` that no supervisor watches any more."""
    found = {pid for record in _sessions(folder) for pid in record.members()}
    found.update(process_tree.marked(MARKER, lambda value: _is_orphan(value, folder)))
    return {pid for pid in found if process_tree.start_time(pid) is not None}


def end_orphans(folder: Path, within: float = 10.0) -> int:
    """Kills all of them; how many there were. Raises `TimeoutError` if some do not end."""
    ended = process_tree.kill_until_gone(lambda: orphans(folder), within)
    _tidy(folder)
    return ended


def _is_orphan(value: str, folder: Path) -> bool:
    owner, pid, started = value.rsplit(":", 2)
    return owner == str(folder) and str(process_tree.start_time(int(pid))) != started


def _is_ours(pid: int) -> bool:
    """Against a stranger whose session has got the number of one of ours that is long over."""
    if process_tree.oom_score(pid) == OOM_SCORE:
        return True
    return MARKER in (process_tree.environment(pid) or {})


def _sessions(folder: Path) -> Iterator[EngineSession]:
    for path in _files(folder):
        with contextlib.suppress(OSError, ValueError, TypeError):  # half removed, or not a record
            yield EngineSession(**json.loads(path.read_text()))


def _tidy(folder: Path) -> None:
    """Removes the records of dead supervisors, of whom nothing is left."""
    for path in _files(folder):
        pid, _, started = path.name.partition("-")
        if pid.isdigit() and str(process_tree.start_time(int(pid))) != started:
            path.unlink(missing_ok=True)


def _files(folder: Path) -> list[Path]:
    try:
        return [path for path in (folder / "engines").iterdir() if path.name[0] != "."]
    except FileNotFoundError:
        return []


def _world() -> str:
    return f"{_BOOT_ID.read_text().strip()}:{Path('/proc/self/ns/pid').stat().st_ino}"
