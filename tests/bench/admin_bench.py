"""How long people wait for `elasticd status` when the fleet is large and a provider hangs.

The real core with 2,000 nodes, 3,000 replicas and 50 models behind the real admin app, in a process
of its own, while a provider's calls never return. Measured: the API's answer, and the whole command
as a person runs it. `build/reports/admin.json` has every figure; the exit code is 1 beyond a bound.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import socket as socketlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from multiprocessing.synchronize import Event as Flag
from pathlib import Path
from typing import Any

from elasticd.cli.admin_client import AdminClient
from elasticd.clock import Clock
from elasticd.core.codec import encode
from elasticd.core.decide import Core
from elasticd.core.events import Configured, Event
from elasticd.core.fleet import Node, Replica, Row
from elasticd.core.lifecycle import NodePhase, ReplicaPhase
from elasticd.core.specs import Engine, FleetSpec, ModelSpec, NodePool, Scaling
from elasticd.ops.admin import full_app
from elasticd.ops.admin_ports import AdminPorts
from elasticd.ops.admin_site import serve_unix
from elasticd.provider import Instance, LaunchRequest, Market, Offering
from elasticd.runtime.observer import PoolWatch, WatchPeriods
from elasticd.runtime.providers import PoolProvider

REPORT = Path("build/reports/admin.json")
NODES, REPLICAS, MODELS = 2000, 3000, 50
API_BOUND, COMMAND_BOUND = 0.200, 0.700
"""Seconds; of the median, so that a neighbour's burst of work fails nothing."""

CONFIG = """
cluster: prod
state_dir: {state_dir}
admin: {{socket: {socket}}}
node_pools: [{{name: here, provider: local, max_nodes: 1}}]
models: [{{name: tiny, source: "demo:tiny"}}]
"""

_OFFERING = Offering("spot", "z", "g5.2xlarge", "A10G", 2, Market.SPOT, 450_000)


class HungProvider:
    """Takes every call and answers none."""

    async def _never(self) -> Any:
        await asyncio.Event().wait()

    async def offerings(self) -> Sequence[Offering]:
        return await self._never()

    async def instances(self) -> Sequence[Instance]:
        return await self._never()

    async def launch(self, request: LaunchRequest) -> Instance:
        return await self._never()

    async def terminate(self, instance_id: str) -> None:
        await self._never()

    async def aclose(self) -> None:
        """Nothing is open."""


class NoTables:
    """The gateway is not part of this."""

    async def wait_for_other(self, epoch: int, version: int, wait: float) -> None:
        return None


def rows(now: float) -> list[Row]:
    """The ledger of a large fleet."""
    found = []
    for number in range(NODES):
        node = Node(
            f"node-1a2b3c4d-3-{number}",
            "spot",
            NodePhase.BOOTING if number % 20 == 0 else NodePhase.READY,
            now - 50.0,
            now - 40.0,
            offering=_OFFERING,
            instance_id=f"i-{number:017x}",
            address="10.0.0.1",
            gpus=2,
            listed=True,
        )
        found.append(Row("node", node.id, encode(node)))
    for number in range(REPLICAS):
        replica = Replica(
            f"replica-1a2b3c4d-3-{NODES + number}",
            1,
            f"Qwen/Qwen2.5-{number % MODELS}B-Instruct",
            "hash",
            1,
            ReplicaPhase.STARTING if number % 20 == 0 else ReplicaPhase.READY,
            now - 40.0,
            now - 30.0,
            f"node-1a2b3c4d-3-{number % NODES}",
            url="http://10.0.0.1:20000",
            load_phase="loading weights",
        )
        found.append(Row("replica", replica.id, encode(replica)))
    return found


def fleet() -> FleetSpec:
    """Fifty models on one pool."""
    scaling = Scaling(min_replicas=60, max_replicas=80)
    models = tuple(
        ModelSpec(
            f"Qwen/Qwen2.5-{number}B-Instruct",
            "file:/m",
            Engine("vllm"),
            "hash",
            1,
            ("spot",),
            scaling,
        )
        for number in range(MODELS)
    )
    return FleetSpec("prod", models, (NodePool("spot", "hung", 3000),))


async def no_journal(_since_seq: int, _since: float, _limit: int) -> Sequence[Any]:
    """The journal is not part of this."""
    return ()


async def refused(*_: object) -> dict[str, Any]:
    """Changes are not part of this."""
    return {}


def ports(core: Core, clock: Clock, pool: PoolProvider) -> AdminPorts:
    """The controller's side, with the real core and the real wrapper of the hung provider."""

    def status() -> dict[str, Any]:
        return {**core.status(clock.now()), "down": None, "providers": {pool.pool: pool.health()}}

    def emit(_event: Event) -> None:
        """Nobody decides here."""

    return AdminPorts(
        status=status,
        problem=lambda: "",
        waiting_for=list,
        emit=emit,
        preempt=refused,
        tables=NoTables(),
        journal=no_journal,
        reload=refused,
    )


def serve(socket: Path, up: Flag, down: Flag) -> None:
    """The process that stands for the controller."""
    asyncio.run(_serve(socket, up, down))


async def _serve(socket: Path, up: Flag, down: Flag) -> None:
    clock = Clock()
    core = Core("1a2b3c4d" * 4, 3, rows(clock.now()))
    core.step(clock.now(), [Configured(fleet())])
    pool = PoolProvider("spot", HungProvider(), clock)
    watch = PoolWatch(pool, WatchPeriods(), clock, lambda event: None)
    hanging = [asyncio.ensure_future(part()) for part in watch.parts().values()]
    async with serve_unix(full_app(ports(core, clock, pool)), socket):
        up.set()
        await asyncio.to_thread(down.wait)
    for task in hanging:
        task.cancel()
    await asyncio.gather(*hanging, return_exceptions=True)


def time_of(call: Any, rounds: int) -> dict[str, float]:
    """Seconds: the least, the median, the most."""
    spent = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        spent.append(time.perf_counter() - start)
    return {"min": min(spent), "median": statistics.median(spent), "max": max(spent)}


def ask(path: Path) -> None:
    """The API alone: from the connection to the last byte of the answer."""
    with socketlib.socket(socketlib.AF_UNIX, socketlib.SOCK_STREAM) as line:
        line.connect(str(path))
        line.sendall(b"GET /api/v1/status HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        size = 0
        while part := line.recv(1 << 20):
            size += len(part)
    if size < 100_000:
        raise SystemExit("admin bench: the API's answer is not that of the fleet")


def command(config: Path, *flags: str) -> None:
    """The whole program, as a person runs it: it finds the daemon by the configuration."""
    argv = [sys.executable, "-m", "elasticd.cli", "status", "-c", str(config), *flags]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode not in (0, 1) or len(done.stdout) < 100_000:
        raise SystemExit(f"admin bench: the status is not that of the fleet: {done.stderr!r}")


def measure(socket: Path, config: Path, rounds: int) -> dict[str, Any]:
    """Every figure."""
    client = AdminClient(socket, timeout=60.0)
    answer = client.status()
    counts = {key: len(answer[key]) for key in ("nodes", "replicas", "models")}
    if counts != {"nodes": NODES, "replicas": REPLICAS, "models": MODELS}:
        raise SystemExit(f"admin bench: the fleet is not the one that was asked for: {counts}")
    return {
        **counts,
        "bytes": len(json.dumps(answer)),
        "api_s": time_of(lambda: ask(socket), rounds),
        "status_s": time_of(lambda: command(config), rounds),
        "status_json_s": time_of(lambda: command(config, "--json"), rounds),
        "bounds": {"api_s": API_BOUND, "status_s": COMMAND_BOUND},
        "rounds": rounds,
    }


def main() -> int:
    """Exit 1 beyond a bound."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    spawn = multiprocessing.get_context("spawn")
    up, down = spawn.Event(), spawn.Event()
    with tempfile.TemporaryDirectory(prefix="elasticd-") as folder:
        socket = Path(folder) / "admin.sock"
        config = Path(folder) / "elasticd.yaml"
        config.write_text(CONFIG.format(socket=socket, state_dir=Path(folder) / "state"))
        controller = spawn.Process(target=serve, args=(socket, up, down))
        controller.start()
        try:
            if not up.wait(60.0):
                raise SystemExit("admin bench: the admin app did not come up")
            report = measure(socket, config, rounds)
        finally:
            down.set()
            controller.join(20.0)
    api, whole = report["api_s"]["median"], report["status_s"]["median"]
    machine_readable = report["status_json_s"]["median"]
    good = api <= API_BOUND and max(whole, machine_readable) <= COMMAND_BOUND
    report["passed"] = good
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps(report, indent=2) + "\n")
    print(
        f"admin: {NODES} nodes, a hung provider: API {api * 1000:.0f} ms (bound "
        f"{API_BOUND * 1000:.0f}), status {whole * 1000:.0f} ms, as JSON "
        f"{machine_readable * 1000:.0f} ms (bound {COMMAND_BOUND * 1000:.0f}): "
        f"{'fine' if good else 'TOO SLOW'}"
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
