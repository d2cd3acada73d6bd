"""A shared host: somebody else's Ray, Redis and engine are there before us, and after us."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from elasticd.node import process_tree
from elasticd.ray_side.engine_probe import EngineAddress, healthy
from tests.node.programs import program
from tests.node.waiting import alive, eventually
from tests.ray_side.small_cluster import free_port, small_cluster

pytestmark = pytest.mark.e2e

STUB = str(Path(__file__).parent / "stub_engine.py")
RAYS_DEFAULT_PORT = 6379
# Answers PING as Redis does; stands in where Redis is not installed.
_RESP = """
import socketserver, sys
class Answer(socketserver.StreamRequestHandler):
    def handle(self):
        while self.rfile.readline():
            self.wfile.write(b"+PONG\\r\\n")
socketserver.ThreadingTCPServer.allow_reuse_address = True
socketserver.ThreadingTCPServer(("127.0.0.1", int(sys.argv[1])), Answer).serve_forever()
"""


@dataclass(frozen=True)
class Strangers:
    """Their ports, and every process of theirs."""

    ray: int
    redis: int
    engine: int
    pids: tuple[int, ...]

    def are_well(self) -> bool:
        return (
            all(map(alive, self.pids))
            and _listens(self.ray)
            and _ping(self.redis)
            and healthy(EngineAddress("127.0.0.1", self.engine, ""))
        )


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5):
        return True
    return False


def _ping(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5) as redis:
        redis.sendall(b"PING\r\n")
        return redis.recv(100) == b"+PONG\r\n"
    return False


def _ray_port() -> int:
    """Ray's default, unless this host has a stranger there already."""
    return free_port() if _listens(RAYS_DEFAULT_PORT) else RAYS_DEFAULT_PORT


@pytest.fixture
def strangers() -> Iterator[Strangers]:
    with tempfile.TemporaryDirectory(prefix="st-", ignore_cleanup_errors=True) as folder:
        ray, redis, engine = _ray_port(), free_port(), free_port()
        ray_start = ("start", "--head", "--port", str(ray), "--temp-dir", folder, "--block")
        small = ("--num-cpus", "0", "--num-gpus", "2", "--object-store-memory", "80000000")
        quiet = ("--include-dashboard=false", "--include-log-monitor=false", "--no-monitor")
        resp = [sys.executable, "-c", _RESP, str(redis)]
        if shutil.which("redis-server"):
            resp = ["redis-server", "--port", str(redis), "--bind", "127.0.0.1", "--save", ""]
        running = [
            subprocess.Popen(words, env=env, cwd=folder, stdout=subprocess.DEVNULL)
            for words, env in (
                (
                    [sys.executable, "-m", "ray.scripts.scripts", *ray_start, *small, *quiet],
                    {**os.environ, "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"},
                ),
                (resp, {**os.environ}),
                ([sys.executable, STUB, str(engine)], {**os.environ, "ELASTICD_ENGINE_KEY": "x"}),
            )
        ]
        address = EngineAddress("127.0.0.1", engine, "")
        eventually(lambda: _listens(ray) and _ping(redis) and healthy(address), within=60)
        pids = {p for r in running for p in (r.pid, *process_tree.descendants(r.pid))}
        yield Strangers(ray, redis, engine, tuple(pids))
        for process in running:
            process.terminate()
            process.wait(60)


async def test_strangers_on_the_host_live_on_through_our_start_our_work_and_our_stop(
    strangers: Strangers, tmp_path: Path
) -> None:
    async with small_cluster() as cluster:
        cluster.start_head_and_agent()
        cluster.start_node("n", 1)
        await cluster.until(lambda s: any(n.alive and n.gpus == 1 for n in s.nodes))
        # The stranger's engine sits on the first port of the range: ours takes another one.
        ports = {"port_min": strangers.engine, "port_max": strangers.engine + 50}
        argv = (sys.executable, STUB, "{port}")
        order = cluster.order("r", "n", 1, engine_kind="command", engine_argv=argv, **ports)
        await cluster.client.start(order)
        (replica,) = await cluster.until_ready("r")
        assert not replica.url.endswith(f":{strangers.engine}")
        assert strangers.are_well()
        await cluster.stop()
    assert strangers.are_well()

    # And where a stranger has the very port that we were given: one message that names it.
    for port in (strangers.ray, strangers.redis):
        arguments = ("--state-dir", str(tmp_path / "state"), "--port", str(port))
        with program(tmp_path, "elasticd.node.head", *arguments) as head:
            assert await asyncio.to_thread(head.process.wait, 20) == 1
    said = [line for line in head.said().splitlines() if "is not free" in line]
    assert "gcs_server" in said[0]
    assert "redis" in said[1] or "RESP" in said[1] or "socketserver" in said[1]
    assert strangers.are_well()
