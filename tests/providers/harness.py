"""Local machines for tests: making pools, waiting for facts, seeing what lives on the host."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from elasticd.provider import (
    Instance,
    InstanceNotFound,
    LaunchRequest,
    Market,
    Offering,
    PoolContext,
)
from elasticd_providers.local import PLUGIN, LocalOptions, LocalProvider

SLEEPER = "exec sleep 987654\n"
"""A bootstrap script that keeps its machine up."""


@cache
def why_no_namespaces() -> str | None:
    """Why this host cannot make machines; `None` where it can."""
    command = ["unshare", "--pid", "--fork", "--mount-proc", "true"]
    try:
        tried = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
        if tried.returncode != 0:
            command[1:1] = ["--user", "--map-root-user"]
            tried = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except FileNotFoundError:
        return "util-linux (unshare) is not installed"
    return None if tried.returncode == 0 else tried.stderr.strip()


needs_namespaces = pytest.mark.skipif(
    why_no_namespaces() is not None, reason=f"no new PID namespaces here: {why_no_namespaces()}"
)


class Pool:
    """One pool in a state directory, with as many provider objects over it as a test likes."""

    def __init__(self, state_dir: Path) -> None:
        self.state_dir = state_dir
        self.state_dir.mkdir(mode=0o700)

    def provider(self, *, ledger: str = "ledger1", **options: Any) -> LocalProvider:
        context = PoolContext("pool", "testing", ledger, self.state_dir)
        provider = PLUGIN.create(context, LocalOptions.model_validate({"gpus": 1} | options))
        assert isinstance(provider, LocalProvider)
        return provider

    async def request(
        self, node_id: str = "node-1", bootstrap: str = SLEEPER, *, ledger: str = "ledger1"
    ) -> LaunchRequest:
        """A request for anything that the default pool offers."""
        return LaunchRequest(node_id, "testing", ledger, (offering(),), bootstrap)

    def machine_dir(self, instance: Instance) -> Path:
        return self.state_dir / "machines" / instance.instance_id

    def leftovers(self) -> list[str]:
        """Machine directories and node directories that still exist, and what runs in them."""
        return [str(p) for p in (self.state_dir / "machines").glob("*")]


def offering(zone: str = "local", pool: str = "pool") -> Offering:
    """As `Pool.provider` offers it."""
    return Offering(pool, zone, "local-1xsimulated", "simulated", 1, Market.SPOT, 0)


def processes_with(marker: str) -> list[int]:
    """Host pids whose command line or environment holds `marker`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
            if marker.encode() in text and state not in "ZX":
                found.append(int(entry.name))
    return found


async def until(holds: Callable[[], Any], what: str, limit: float = 20.0) -> Any:
    """The first true answer of `holds`; fails the test after `limit` seconds without one."""
    deadline = time.monotonic() + limit
    while not (answer := holds()):
        assert time.monotonic() < deadline, f"not within {limit} s: {what}"
        await asyncio.sleep(0.02)
    return answer


async def until_listed(
    provider: LocalProvider, holds: Callable[[list[Instance]], bool], what: str
) -> list[Instance]:
    """The first list of instances for which `holds`."""
    deadline = time.monotonic() + 20.0
    while not holds(listed := list(await provider.instances())):
        assert time.monotonic() < deadline, f"not within 20 s: {what}; listed: {listed}"
        await asyncio.sleep(0.02)
    return listed


async def end(provider: LocalProvider, instance_id: str) -> None:
    """Terminates until the provider says that nothing is left."""
    try:
        async with asyncio.timeout(20):
            while True:
                await provider.terminate(instance_id)
    except InstanceNotFound:
        return
