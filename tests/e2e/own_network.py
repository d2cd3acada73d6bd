"""Machines in network namespaces of their own, each behind a link that can be taken down.

A program that wants them runs itself in a namespace without any way out (`inside_command`): what
it sends to a machine whose link is down can reach nobody else. All of it, namespaces and processes,
ends with that program, however it ends.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

_PRIVATE = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
_NET = "198.18"
"""Addresses set apart for tests between network devices (RFC 2544)."""


def inside_command(module: str, *arguments: str) -> list[str]:
    """Runs a module of ours where `FarMachine` works."""
    return [*_private(), sys.executable, "-m", module, *arguments]


def why_not() -> str:
    """Why there can be no such networks here; empty: there can."""
    missing = [tool for tool in ("unshare", "nsenter", "ip") if shutil.which(tool) is None]
    if missing:
        return f"no {', '.join(missing)} here"
    make_a_link = ["ip", "link", "add", "near", "type", "veth", "peer", "name", "far"]
    tried = subprocess.run([*_private(), *make_a_link], capture_output=True, text=True)
    return "" if tried.returncode == 0 else f"no network namespaces here: {tried.stderr.strip()}"


def come_up() -> None:
    """To be called first by the program inside."""
    _run("ip", "link", "set", "lo", "up")


class FarMachine:
    """One machine; `number` from 1 on. What it runs is reached at `address`, and reaches us at
    `hub`."""

    def __init__(self, number: int) -> None:
        self.address = f"{_NET}.{number}.2"
        self.hub = f"{_NET}.{number}.1"
        self._link, self._far_link = f"near{number}", f"far{number}"
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        holder = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; exec sleep infinity"],
                                  stdout=subprocess.PIPE)  # fmt: skip
        self._processes.append(holder)
        assert holder.stdout is not None
        holder.stdout.readline()  # it has its namespace now
        holder.stdout.close()
        self._enter = ["nsenter", "--net", f"--target={holder.pid}"]
        peer = ("peer", "name", self._far_link, "netns", str(holder.pid))
        _run("ip", "link", "add", self._link, "type", "veth", *peer)
        _run("ip", "address", "add", f"{self.hub}/30", "dev", self._link)
        _run("ip", "link", "set", self._link, "up")
        _run(*self._enter, "ip", "address", "add", f"{self.address}/30", "dev", self._far_link)
        _run(*self._enter, "ip", "link", "set", "lo", "up")
        self.heal()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in reversed(self._processes):
            process.kill()
            process.wait()

    def start(self, *command: str, **more: Any) -> subprocess.Popen[bytes]:
        """Runs a program on the machine; `more` is as for `Popen`."""
        process = subprocess.Popen([*self._enter, *command], **more)
        self._processes.append(process)
        return process

    def cut(self) -> None:
        """Takes its end of the link down: nothing is refused, nothing arrives."""
        _run(*self._enter, "ip", "link", "set", self._far_link, "down")

    def heal(self) -> None:
        """The link is up again."""
        _run(*self._enter, "ip", "link", "set", self._far_link, "up")


def _private() -> Sequence[str]:
    own_user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return [*_PRIVATE, *own_user, "--"]


def _run(*command: str) -> None:
    subprocess.run(command, check=True)
