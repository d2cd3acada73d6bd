"""What the controller costs while nothing happens: processor share and memory, over a minute.

    python tests/bench/idle_bench.py [--seconds N]

The real `elasticd controller` and `elasticd gateway`, one machine of the local provider, and a
stand-in for the cluster agent on which one replica is ready; no request. Writes
`build/reports/idle.json`; exits non-zero beyond the bounds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

sys.path.insert(0, str(Path(__file__).parents[2]))

from elasticd.agent_api.messages import (
    ClusterState,
    NodeReport,
    ReplicaOrder,
    ReplicaReport,
)

CORE_PERCENT, RSS_MB = 1.0, 150.0
SETTLE = 10.0
"""Seconds after the replica is ready: what a start costs is not what idling costs."""
DEADLINE = 60.0
REPORT = Path("build/reports/idle.json")
CONFIG = """
cluster: idle
state_dir: {folder}/state
on_stop: release
gateway: {{listen: "127.0.0.1:{gateway}"}}
admin: {{listen: "127.0.0.1:{admin}"}}
agent: {{listen: "127.0.0.1:{agent}"}}
node_pools: [{{name: here, provider: local, max_nodes: 1, gpus: 1, price: "0.10 USD"}}]
models: [{{name: tiny, source: "file:{folder}", engine: {{command: ["serve", "{{port}}"]}}}}]
"""


class StandIn:
    """The agent's wire with long polls that are held: every machine is up, every engine ready."""

    def __init__(self) -> None:
        self.nodes: set[str] = set()
        self.orders: dict[str, ReplicaOrder] = {}
        self.version = 1
        self._changed = asyncio.Condition()

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/v1/state", self._state)
        app.router.add_put("/v1/replicas/{id}", self._start)
        app.router.add_delete("/v1/replicas/{id}", self._stop)
        app.router.add_post("/v1/nodes/join", self._not_yet)
        return app

    async def change(self) -> None:
        """Lets the polls that are held answer."""
        async with self._changed:
            self.version += 1
            self._changed.notify_all()

    async def _state(self, request: web.Request) -> web.Response:
        known = int(request.query["version"])
        try:
            async with asyncio.timeout(float(request.query["wait"])), self._changed:
                await self._changed.wait_for(lambda: self.version != known)
        except TimeoutError:
            pass
        nodes = tuple(NodeReport(n, True, gpus=1, boot="up") for n in sorted(self.nodes))
        replicas = tuple(
            ReplicaReport(
                o.replica_id,
                o.incarnation,
                o.node_id,
                o.model,
                o.spec_hash,
                "ready",
                url="http://127.0.0.1:9",
            )
            for o in self.orders.values()
        )
        state = ClusterState("one", self.version, True, True, nodes, replicas)
        return web.json_response(state.to_json())

    async def _not_yet(self, _request: web.Request) -> web.Response:
        """Keeps the machine's watcher asking: there is no Ray to join."""
        return web.json_response({"error": "not now"}, status=503)

    async def _start(self, request: web.Request) -> web.Response:
        order = ReplicaOrder.from_json(await request.json())
        self.orders[order.replica_id] = order
        await self.change()
        return web.json_response({}, status=202)

    async def _stop(self, request: web.Request) -> web.Response:
        self.orders.pop(request.match_info["id"], None)
        await self.change()
        return web.json_response({}, status=202)


@contextmanager
def elasticd(*argv: str) -> Iterator[subprocess.Popen[bytes]]:
    """One of our processes, ended at the end."""
    process = subprocess.Popen([sys.executable, "-m", "elasticd.cli", *argv])
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_port() -> int:
    """A port that nobody has now."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        return int(held.getsockname()[1])


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads."""
    stat = Path(f"/proc/{pid}/stat").read_text()
    fields = stat[stat.rindex(")") + 2 :].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mb(pid: int) -> dict[str, float]:
    """Resident and proportional memory."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    sizes = {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines}
    return {"rss": round(sizes["Rss"], 1), "pss": round(sizes["Pss"], 1)}


class Operator:
    """Asks the controller over its socket."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def status(self) -> dict[str, Any]:
        """Empty until it answers."""
        try:
            async with self._session.get("/api/v1/status") as answer:
                return dict(await answer.json())
        except aiohttp.ClientError:
            return {}

    async def down(self) -> None:
        """Gives the machine back and waits until it is gone."""
        await self._session.post("/api/v1/down", json={"by": "idle bench"})
        idle = [r["id"] for r in (await self.status()).get("replicas", ())]
        loads = {"v": 1, "loads": [{"replica_id": r, "in_flight": 0} for r in idle]}
        async with asyncio.timeout(DEADLINE):
            while (await self.status()).get("down") != {"left": 0}:
                await self._session.post("/internal/v1/report", json=loads)
                await asyncio.sleep(0.5)


async def until_ready(operator: Operator, stand_in: StandIn) -> None:
    """Tells the stand-in of each machine that was rented, until the replica is ready."""
    async with asyncio.timeout(DEADLINE):
        while True:
            status = await operator.status()
            if any(model["ready"] for model in status.get("models", ())):
                return
            rented = {n["id"] for n in status.get("nodes", ()) if n["phase"] != "gone"}
            if rented - stand_in.nodes:
                stand_in.nodes |= rented
                await stand_in.change()
            await asyncio.sleep(0.2)


async def measure(folder: Path, seconds: float) -> dict[str, Any]:
    """Starts everything, waits, and measures the controller for so long."""
    ports = {name: free_port() for name in ("gateway", "admin", "agent")}
    config = folder / "elasticd.yaml"
    config.write_text(CONFIG.format(folder=folder, **ports))
    (folder / "config.json").write_text("{}")
    stand_in = StandIn()
    runner = web.AppRunner(stand_in.app(), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", ports["agent"]).start()
    connector = aiohttp.UnixConnector(str(folder / "state" / "run" / "admin.sock"))
    try:
        async with aiohttp.ClientSession("http://admin", connector=connector) as session:
            operator = Operator(session)
            with elasticd("controller", "-c", str(config)) as controller:
                with elasticd("gateway", "-c", str(config)):
                    await until_ready(operator, stand_in)
                    await asyncio.sleep(SETTLE)
                    before, rounds = cpu_seconds(controller.pid), await operator.status()
                    await asyncio.sleep(seconds)
                    spent = cpu_seconds(controller.pid) - before
                    memory = memory_mb(controller.pid)
                    after = await operator.status()
                await operator.down()
    finally:
        await runner.cleanup()
    if [n["id"] for n in rounds["nodes"]] != [n["id"] for n in after["nodes"]]:
        raise SystemExit("idle: FAILED: machines came or went, so nothing was measured")
    steps = after["controller"]["rounds"] - rounds["controller"]["rounds"]
    return {
        "seconds": seconds,
        "core_percent": round(100.0 * spent / seconds, 2),
        "memory_mb": memory,
        "rounds_a_second": round(steps / seconds, 2),
    }


def main() -> int:
    """Exit 1 beyond a bound."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="elasticd-idle-") as folder:
        report = asyncio.run(measure(Path(folder), options.seconds))
    report["bounds"] = {"core_percent": CORE_PERCENT, "rss_mb": RSS_MB}
    fine = report["core_percent"] <= CORE_PERCENT and report["memory_mb"]["rss"] <= RSS_MB
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps(report, indent=1) + "\n")
    print(
        f"idle: {'ok' if fine else 'FAILED'}: {report['core_percent']} % of a core "
        f"(bound {CORE_PERCENT}), {report['memory_mb']['rss']} MB (bound {RSS_MB}), "
        f"{report['rounds_a_second']} rounds a second"
    )
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
