"""One life on real Ray: head, node, replica; then each of them is killed in turn."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from elasticd.agent_api.client import AgentClient, AgentUnreachable
from elasticd.agent_api.messages import ClusterState, ReplicaOrder, ReplicaReport
from elasticd.cluster_secret import ClusterSecret
from tests.node.waiting import alive, eventually, stays

pytestmark = pytest.mark.e2e

STUB = str(Path(__file__).parent / "stub_engine.py")
AGENT = """
import asyncio, sys
from pathlib import Path
from elasticd.errors import ElasticdError
from elasticd.ray_side.agent import AgentConfig, run_agent
try:
    asyncio.run(run_agent(AgentConfig(Path(sys.argv[1]), sys.argv[2], port=int(sys.argv[3]))))
except ElasticdError as problem:
    sys.exit(str(problem))
"""
Found = Callable[[ClusterState], bool]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("0.0.0.0", 0))
        return int(probe.getsockname()[1])


class Life:
    """The processes of one small cluster, each started and killed by name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state_dir = folder / "state"
        self.secret = ClusterSecret.load_or_create(self.state_dir)
        self.ray_port, self.agent_port = _free_port(), _free_port()
        self.agent_url = f"http://127.0.0.1:{self.agent_port}"
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        ray = f"127.0.0.1:{self.ray_port}"
        arguments = {
            "head": (
                *("-m", "elasticd.node.head", "--state-dir", str(self.state_dir)),
                *("--port", str(self.ray_port)),
            ),
            "agent": ("-c", AGENT, str(self.state_dir), ray, str(self.agent_port)),
            "node": ("-m", "elasticd.node.watcher", "--node-id", "n-1", "--agent", self.agent_url),
        }[name]
        environment = {
            **os.environ,
            "ELASTICD_JOIN_TOKEN": self.secret.join_token("n-1"),
            "ELASTICD_NODE_DIR": str(self.folder / "n"),
            "ELASTICD_DECLARED_GPUS": "2",
        }
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [sys.executable, *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def kill(self, name: str) -> None:
        process = self.running.pop(name)
        process.kill()
        process.wait()

    def keep_agent(self) -> None:
        """Does what its supervisor does: an agent that has ended is started again."""
        if self.running["agent"].poll() is not None:
            self.running.pop("agent").wait()
            self.start("agent")

    def end(self) -> None:
        for name in ("node", "agent", "head"):
            if (process := self.running.get(name)) is not None:
                process.terminate()
        for process in self.running.values():
            process.wait(30)

    def order(self, replica_id: str) -> ReplicaOrder:
        return ReplicaOrder(
            replica_id=replica_id,
            incarnation=1,
            node_id="n-1",
            model="stub",
            spec_hash="h",
            gpus=1,
            model_path="",
            engine_kind="command",
            engine_argv=(sys.executable, STUB, "{port}", "grandchild", "tell-pid"),
            key=self.secret.engine_key(replica_id, 1),
            host="127.0.0.1",
            port_min=21000,
            port_max=21999,
            start_timeout=60.0,
        )


@pytest.fixture
def life() -> Iterator[Life]:
    # Not below pytest's own folder: Ray's socket paths would be too long.
    with tempfile.TemporaryDirectory(prefix="el-", ignore_cleanup_errors=True) as folder:
        made = Life(Path(folder))
        yield made
        made.end()
        assert _left_of(made.folder) == []


def _left_of(folder: Path) -> list[str]:
    """Command lines that still speak of the test's folder."""
    lines = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if f"{folder}/" in line:
            lines.append(line[:200])
    return lines


async def _until(
    life: Life,
    client: AgentClient,
    found: Found,
    within: float = 60.0,
    before_each: Callable[[], Awaitable[None]] | None = None,
) -> float:
    """Waits for a state; how long it took, in seconds."""
    begin = asyncio.get_running_loop().time()
    state: ClusterState | None = None
    try:
        async with asyncio.timeout(within):
            while True:
                life.keep_agent()
                try:
                    if before_each is not None:
                        await before_each()
                    known = (state.incarnation, state.version) if state else ("", -1)
                    state = await client.state(*known, wait=1.0)
                except AgentUnreachable:
                    await asyncio.sleep(0.1)
                    continue
                if found(state):
                    return asyncio.get_running_loop().time() - begin
    except TimeoutError:
        pytest.fail(f"not within {within} s; last: {state}")


def _is(replica_id: str, phase: str) -> Found:
    return lambda s: (
        s.complete and any(r.replica_id == replica_id and r.phase == phase for r in s.replicas)
    )


async def _replica(client: AgentClient, replica_id: str) -> ReplicaReport:
    state = await client.state()
    return next(r for r in state.replicas if r.replica_id == replica_id)


def _family(report: ReplicaReport) -> tuple[list[int], int]:
    """The engine's processes with its supervisor, and the actor's process above them."""
    engine = int(next(line for line in report.stderr_tail if line.isdecimal()))
    children = Path(f"/proc/{engine}/task/{engine}/children").read_text().split()
    status = Path(f"/proc/{engine}/status").read_text()
    supervisor = int(status.split("PPid:")[1].split()[0])
    return [supervisor, engine, *map(int, children)], _actor_of(supervisor)


def _actor_of(supervisor: int) -> int:
    """Who holds the other end of the supervisor's standard input."""
    pipe = Path(f"/proc/{supervisor}/fd/0").readlink()
    for entry in Path("/proc").glob("[0-9]*/fd/*"):
        pid = int(entry.parts[2])
        try:
            if pid != supervisor and entry.readlink() == pipe:
                return pid
        except OSError:
            continue
    pytest.fail("nobody holds the supervisor's hand")


async def test_a_life(life: Life) -> None:
    life.start("head")
    life.start("agent")
    life.start("node")
    async with AgentClient(life.agent_url, life.secret.agent_token) as client:
        await _until(
            life, client, lambda s: s.complete and any(n.alive and n.gpus == 2 for n in s.nodes)
        )
        await client.start(life.order("r-1"))
        await client.start(life.order("r-2"))
        await _until(life, client, _is("r-1", "ready"))
        await _until(life, client, _is("r-2", "ready"))
        first, second = await _replica(client, "r-1"), await _replica(client, "r-2")
        assert {first.gpu_ids, second.gpu_ids} == {("0",), ("1",)}

        # The worker process is killed: the engine goes with it, the other replica does not care.
        family, worker = _family(first)
        assert worker not in family
        os.kill(worker, signal.SIGKILL)
        eventually(lambda: not any(map(alive, family)), within=5)
        await _until(life, client, _is("r-1", "stopped"))
        assert (await _replica(client, "r-1")).error

        # The agent is killed: its next life finds the replica, which did not notice.
        life.kill("agent")
        life.start("agent")
        await _until(life, client, _is("r-2", "ready"))
        assert (await _replica(client, "r-2")).url == second.url

        # The head is killed and away for a while: the replica runs on, and is taken back.
        life.kill("head")
        await _until(life, client, lambda s: not s.head_alive and not s.complete)
        family, _ = _family(second)
        # Longer than a node's death takes to be noticed: nobody may be declared dead.
        await asyncio.to_thread(stays, lambda: all(map(alive, family)), 10.0)
        life.start("head")
        await _until(life, client, _is("r-2", "ready"))
        assert (await _replica(client, "r-2")).url == second.url

        # And the cluster still works: the free GPU takes a new replica, and gives it back.
        await _order_until_taken(life, client, "r-3")
        await _until(life, client, _is("r-3", "ready"))
        family, _ = _family(await _replica(client, "r-3"))
        await client.stop("r-3", 1, 5.0)
        await _until(life, client, _is("r-3", "stopped"))
        assert not any(map(alive, family))

        # The machine is killed: nothing of it is left.
        family, worker = _family(second)
        life.kill("node")
        eventually(lambda: not any(map(alive, [*family, worker])), within=10)
        await _until(life, client, _is("r-2", "stopped"))


async def _order_until_taken(life: Life, client: AgentClient, replica_id: str) -> None:
    """As the controller does: an agent that attaches anew loses what it had not yet done."""

    def placed(state: ClusterState) -> bool:
        return any(r.replica_id == replica_id and r.gpu_ids for r in state.replicas)

    async def order() -> None:
        await client.start(life.order(replica_id))

    # Ray's head tells the nodes anew what is free where; on a busy machine that takes a while.
    await _until(life, client, placed, within=120.0, before_each=order)
