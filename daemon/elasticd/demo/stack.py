"""A whole elasticd on this machine, started, watched and hurt from outside, as a person would.

Used by the demo and by the end-to-end tests. It talks to the product by its command, its admin
socket and its gateway only; processes are found by the marks they carry, never by their names
alone, so that nobody else's process is ever touched.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from elasticd.cli.admin_client import AdminClient
from elasticd.errors import ElasticdError
from elasticd.settings.load import load

Status = dict[str, Any]
_POLL = 0.25


class TooLate(Exception):
    """What was waited for did not come in time; the message has the last status."""


class Stack:
    """One `elasticd run` of the configuration at `config`, its output in `log`."""

    def __init__(self, config: Path, log: Path) -> None:
        self.config = config
        self.log = log
        self.settings = load(config)
        self.state_dir = self.settings.state_dir
        self.url = self.settings.settings.gateway.listen.url
        self._admin = AdminClient(self.settings.admin_socket, timeout=5.0)
        self._run: subprocess.Popen[bytes] | None = None
        self._ledger = ""

    def start(self) -> None:
        """Starts `elasticd run`; returns at once."""
        with self.log.open("ab") as out:
            self._run = subprocess.Popen(
                [sys.executable, "-m", "elasticd.cli", "run", "-c", str(self.config)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    @property
    def supervisor(self) -> int:
        """The process id of `elasticd run`."""
        assert self._run is not None
        return self._run.pid

    async def stop(self, limit: float = 120.0) -> int:
        """SIGTERM to `elasticd run`, and its exit code. Raises `TooLate` after `limit` seconds."""
        assert self._run is not None
        self._run.send_signal(signal.SIGTERM)
        try:
            return await asyncio.to_thread(self._run.wait, limit)
        except subprocess.TimeoutExpired:
            raise TooLate(f"no end {limit:g} s after SIGTERM\n{self.last_lines()}") from None

    def kill_everything(self) -> None:
        """The end of a test that went wrong: nothing of ours may stay."""
        if self._run is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._run.pid, signal.SIGKILL)
            self._run.wait()
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def last_lines(self, count: int = 40) -> str:
        """The end of what `elasticd run` has said."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-count:])

    async def status(self) -> Status | None:
        """The controller's status, or `None` while it does not answer."""
        try:
            status = await asyncio.to_thread(self._admin.status)
        except ElasticdError:
            return None
        self._ledger = status["ledger_id"][:8]
        return status

    async def until(self, what: str, holds: Callable[[Status], bool], limit: float) -> float:
        """Seconds until `holds` of the status; raises `TooLate` after `limit`."""
        started = time.monotonic()
        last: Status | None = None
        while time.monotonic() - started < limit:
            status = await self.status()
            last = status or last
            if status is not None and holds(status):
                return time.monotonic() - started
            if self._run is not None and self._run.poll() is not None:
                raise TooLate(f"{what}: `elasticd run` has ended\n{self.last_lines()}")
            await asyncio.sleep(_POLL)
        raise TooLate(f"{what}: not within {limit:g} s\n{_brief(last)}\n{self.last_lines(15)}")

    async def preempt(self, node_id: str, notice: float | None = None) -> None:
        """`drill preempt`: the node's machine is gone after `notice` seconds, or at once."""
        await asyncio.to_thread(self._admin.preempt, node_id, notice, "elasticd demo")

    def child(self, name: str) -> int:
        """The process id of `head`, `agent`, `controller` or `gateway`."""
        return int(json.loads((self.state_dir / "run" / f"{name}.pid").read_text())["pid"])

    def engines(self) -> dict[str, list[int]]:
        """Engine processes by replica id, parents first; several ids for one model are copies."""
        found: dict[str, list[int]] = {}
        for pid in _pids():
            mark = _variable(pid, "ELASTICD_REPLICA")
            if mark is not None:
                replica_id = str(json.loads(mark)[0])
                if replica_id.startswith(f"r-{self._ledger}-") and _alive(pid):
                    found.setdefault(replica_id, []).append(pid)
        return found

    def actor(self, status: Status, replica_id: str) -> int:
        """The Ray process that holds a replica's actor, on a machine that runs this one only."""
        [node_id] = [r["node_id"] for r in status["replicas"] if r["id"] == replica_id]
        for record in self.state_dir.glob("pools/*/machines/*/machine.json"):
            machine = json.loads(record.read_text())
            if machine["node_id"] != node_id:
                continue
            for pid in _pids():
                folder = _variable(pid, "ELASTICD_NODE_DIR")
                if folder == machine["node_dir"] and _command(pid).startswith("ray::ReplicaActor"):
                    return pid
        raise LookupError(f"no actor process of {replica_id} on {node_id}")

    def processes(self) -> list[int]:
        """Everything of ours that runs: by our state directory or a machine's own directory."""
        marks = [str(self.state_dir).encode(), str(self.config).encode()]
        for record in self.state_dir.glob("pools/*/*/*/machine.json"):
            with contextlib.suppress(FileNotFoundError, ValueError):
                marks.append(str(json.loads(record.read_text())["node_dir"]).encode())
        own = {os.getpid(), os.getppid()}
        return [p for p in _pids() if p not in own and _alive(p) and _carries(p, marks)]


def _brief(status: Status | None) -> str:
    """What a person needs to see why something did not come."""
    if status is None:
        return "no status"
    lines = [
        *(f"model {m['name']}: {m['reasons']} {m['blocked']}" for m in status["models"]),
        *(f"node {n['id']} {n['phase']}: {n['reason']}" for n in status["nodes"]),
        *(
            f"replica {r['id']} {r['phase']} ({r['load_phase']}) {r['cause']}"
            for r in status["replicas"]
        ),
        f"cluster: complete {status['cluster_complete']}, {status['cluster_detail']}",
    ]
    return "\n".join(lines)


def _pids() -> Iterator[int]:
    return (int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit())


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _carries(pid: int, marks: list[bytes]) -> bool:
    texts = (_read(pid, "cmdline"), _read(pid, "environ"))
    return any(mark in text for mark in marks for text in texts)


def _variable(pid: int, name: str) -> str | None:
    prefix = f"{name}=".encode()
    for entry in _read(pid, "environ").split(b"\0"):
        if entry.startswith(prefix):
            return entry[len(prefix) :].decode()
    return None


def _command(pid: int) -> str:
    return _read(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace")


def _stat(pid: int) -> list[str]:
    text = _read(pid, "stat").decode(errors="replace")
    return text[text.rindex(")") + 2 :].split() if ")" in text else []


def _alive(pid: int) -> bool:
    stat = _stat(pid)
    return bool(stat) and stat[0] not in "ZX"
