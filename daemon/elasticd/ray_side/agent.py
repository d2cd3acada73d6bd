"""The cluster agent: one process that stands between a Ray cluster and the controller.

It serves what it knows at once, attached or not, and never lets a slow Ray call hold up another.
If this process cannot go on as Ray driver it ends; its supervisor starts it again, and it finds
the replicas by the names of their detached actors.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
from aiohttp import web

from elasticd.agent_api.messages import ClusterState, JoinAnswer, ReplicaReport
from elasticd.cluster_secret import ClusterSecret
from elasticd.errors import ElasticdError
from elasticd.node import ray_env, versions
from elasticd.node.port_holder import port_holder
from elasticd.ray_side.cluster import Cluster, DriverLost, HeadAway
from elasticd.ray_side.names import NAMESPACE
from elasticd.ray_side.nodes import Joins, Nodes
from elasticd.ray_side.publication import Publication
from elasticd.ray_side.replicas import Replicas
from elasticd.ray_side.surface import Surface, make_app
from elasticd.threads import in_thread

LOOK = 1.0
LOAD_TIMEOUT = 120.0

log = structlog.get_logger("elasticd.agent")


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """`ray_address` is `host:port` of the head, as nodes reach it too; `port` 0 picks one."""

    state_dir: Path
    ray_address: str
    host: str = "127.0.0.1"
    port: int = 8702
    namespace: str = NAMESPACE


class AgentLost(ElasticdError):
    """The agent must be started again to go on."""


async def run_agent(config: AgentConfig, ready: Callable[[int], None] = lambda _: None) -> None:
    """Runs until SIGTERM or SIGINT. Raises `AgentLost` when it must be started anew.

    `ready` is told the port once the agent answers.
    """
    secret = ClusterSecret.load_or_create(config.state_dir)
    folder = config.state_dir / "ray"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    token_file = folder / "agent.token"
    ray_env.write_token(token_file, secret.ray_token)
    # Ray reads its environment when it is imported: only now.
    for name in set(os.environ) - set(ray_env.without_rays_own(os.environ)):
        del os.environ[name]
    os.environ.update(ray_env.attached_env(token_file))
    cluster = await in_thread(lambda: _load_ray(config), LOAD_TIMEOUT, "import-ray")
    await serve_cluster(config, secret, cluster, ready)


def _load_ray(config: AgentConfig) -> Cluster:
    from elasticd.ray_side.ray_cluster import RayCluster

    return RayCluster(config.ray_address, config.namespace)


async def serve_cluster(
    config: AgentConfig,
    secret: ClusterSecret,
    cluster: Cluster,
    ready: Callable[[int], None] = lambda _: None,
) -> None:
    """`run_agent` for any `Cluster`."""
    ending = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ending.set)
    try:
        async with asyncio.TaskGroup() as group:
            agent = Agent(config, secret, cluster, group)
            runner = web.AppRunner(make_app(agent.surface), access_log=None, shutdown_timeout=1.0)
            await runner.setup()
            try:
                port = await _listen(runner, config)
                ready(port)
                log.info("agent_up", host=config.host, port=port)
                agent.start()
                await ending.wait()
            finally:
                await runner.cleanup()
            agent.end()
    except ExceptionGroup as failed:
        raise _for_people(failed) from failed
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
        await cluster.aclose()


async def _listen(runner: web.AppRunner, config: AgentConfig) -> int:
    try:
        await web.TCPSite(runner, config.host, config.port).start()
    except OSError as busy:
        raise ElasticdError(
            f"the agent cannot listen on {config.host}:{config.port}: {busy.strerror} "
            f"({port_holder(config.port)}); set another `agent.listen`, or end what listens there"
        ) from busy
    return int(runner.addresses[0][1])


def _for_people(failed: ExceptionGroup[Exception]) -> Exception:
    """The one error a person can act on, else everything."""
    for error in failed.exceptions:
        if isinstance(error, DriverLost):
            return AgentLost(str(error))
        if isinstance(error, ElasticdError):
            return error
    return failed


class Agent:
    """The parts of one agent, wired; `surface` is what its HTTP handlers use."""

    def __init__(
        self,
        config: AgentConfig,
        secret: ClusterSecret,
        cluster: Cluster,
        group: asyncio.TaskGroup,
    ) -> None:
        self._config = config
        self._secret = secret
        self._cluster = cluster
        self._group = group
        self._tasks: set[asyncio.Task[None]] = set()
        self._head_alive = False
        self._listed = False
        self._detail = f"attaching to the Ray head {config.ray_address}"
        # Of what runs, not of what is installed by now. As driver it has what the head has: Ray
        # refuses anything else.
        self._versions = versions.installed()
        self._joins = Joins(config.state_dir / "ray" / "joined")
        self._publication = Publication(self._draft)
        self._replicas = Replicas(cluster, self._spawn, self._publication.poke)
        self._nodes = Nodes(self._publication.poke, self._versions)
        self.surface = Surface(
            cluster=cluster,
            replicas=self._replicas,
            nodes=self._nodes,
            joins=self._joins,
            publication=self._publication,
            secret=secret,
            join_answer=self._join_answer,
            state=self._publication.current,
        )

    def start(self) -> None:
        """Begins to look at the head."""
        self._spawn(self._watch_head(), "head")

    def end(self) -> None:
        """Ends all tasks; actors stay."""
        for task in self._tasks:
            task.cancel()

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = self._group.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _watch_head(self) -> None:
        attached = False
        while True:
            try:
                if not attached:
                    await self._cluster.attach()
                    attached = True
                self._nodes.seen(await self._cluster.nodes())
                self._replicas.adopt(await self._cluster.names())
            except HeadAway as away:
                self._look(alive=False, detail=str(away))
            else:
                self._listed = True
                self._look(alive=True, detail="")
            await asyncio.sleep(LOOK)

    def _look(self, *, alive: bool, detail: str) -> None:
        if alive != self._head_alive:
            log.info("head_back" if alive else "head_away", detail=detail)
        self._head_alive = alive
        self._detail = detail
        self._publication.poke()

    def _draft(self, incarnation: str, version: int) -> ClusterState:
        unsettled = "" if self._replicas.settled else "gathering replicas"
        unsettled = unsettled or self._nodes.unsettled(self._joins.any)
        replicas = self._replicas.reports()
        return ClusterState(
            incarnation=incarnation,
            version=version,
            complete=self._head_alive and self._listed and not unsettled,
            head_alive=self._head_alive,
            nodes=self._nodes.reports(self._head_alive, _held(replicas)),
            replicas=replicas,
            detail=self._detail or unsettled,
            versions=self._versions,
        )

    def _join_answer(self, node_id: str, refused: str) -> JoinAnswer:
        if refused:
            log.warning("join_refused", node=node_id, why=refused)
            return JoinAnswer("", "", self._secret.report_token(node_id), {}, refused)
        return JoinAnswer(
            ray_address=self._config.ray_address,
            ray_token=self._secret.ray_token,
            report_token=self._secret.report_token(node_id),
            ray_env=ray_env.shared_env(),
        )


def _held(replicas: Sequence[ReplicaReport]) -> dict[str, tuple[str, ...]]:
    """By machine: the GPUs that replicas which are over keep back, since they are not free."""
    held: dict[str, tuple[str, ...]] = {}
    for replica in replicas:
        if replica.holding:
            held[replica.node_id] = (*held.get(replica.node_id, ()), *replica.holding)
    return held
