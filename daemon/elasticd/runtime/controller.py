"""The controller's parts list: builds everything in order, runs it, takes it apart in reverse.

Stopping (SIGTERM, SIGINT) means: no new action, what is under way may still be answered and is
written down, machines and replicas stay. SIGHUP means: read the configuration again. A fault of
the control loop ends the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from elasticd.agent_api.client import AgentClient
from elasticd.clock import Clock
from elasticd.cluster_secret import ClusterSecret
from elasticd.core.events import ServeRequested
from elasticd.core.fleet import Row
from elasticd.errors import ElasticdError, UsageError
from elasticd.ops.admin import full_app, reading_app
from elasticd.ops.admin_ports import AdminPorts
from elasticd.ops.admin_site import serve_tcp, serve_unix
from elasticd.ops.hangup import Hangups
from elasticd.runtime.agent_orders import AgentOrders
from elasticd.runtime.cluster_watch import ClusterWatch
from elasticd.runtime.config import ControllerConfig
from elasticd.runtime.drill import Drill
from elasticd.runtime.eternal import Eternal, for_ever
from elasticd.runtime.executor import Executor
from elasticd.runtime.inbox import Inbox
from elasticd.runtime.ledger import Ledger
from elasticd.runtime.loop import ControlLoop
from elasticd.runtime.orders import OrderMaker
from elasticd.runtime.ownership import check_ownership
from elasticd.runtime.performer import Identity, Performer
from elasticd.runtime.picture import Picture
from elasticd.runtime.pools import Pools
from elasticd.runtime.ports import ControlCore
from elasticd.runtime.reload import Reloader
from elasticd.runtime.source_file import SourceFile
from elasticd.runtime.table_holder import TableHolder
from elasticd.runtime.wiring import Wiring

CoreFactory = Callable[[str, int, Sequence[Row]], ControlCore]
"""Makes the core from the ledger's id, the epoch and the rows of an earlier life."""

_log = structlog.get_logger()


class ControllerFailed(ElasticdError):
    """The controller met a fault that nobody foresaw."""


async def run_controller(
    config: ControllerConfig, core_factory: CoreFactory, hangups: Hangups | None = None
) -> None:
    """Runs until SIGTERM or SIGINT. Raises `ElasticdError` when it cannot start or go on.

    `hangups` has collected SIGHUP since the configuration was read.
    """
    async with contextlib.AsyncExitStack() as parts:
        await _run(config, core_factory, hangups or Hangups(), parts)
    _log.info("controller_stopped", machines="kept")


@dataclass(frozen=True, slots=True)
class _Shell:
    """What moves, once built."""

    control: ControlLoop
    executor: Executor
    tables: TableHolder
    reloader: Reloader
    ports: AdminPorts
    eternal: Mapping[str, Eternal]


async def _run(
    config: ControllerConfig,
    core_factory: CoreFactory,
    hangups: Hangups,
    parts: contextlib.AsyncExitStack,
) -> None:
    ledger = await Ledger.open(config.state_dir, config.journal)
    parts.push_async_callback(ledger.aclose)
    check_ownership(config.state_dir, config.wishes.fleet({}, {}), ledger.restored.rows)
    stop = parts.enter_context(_stop_signals())
    shell = await _build(config, core_factory, parts, ledger)
    parts.push_async_callback(shell.executor.aclose)
    await parts.enter_async_context(serve_unix(full_app(shell.ports), config.admin_socket))
    if config.admin_listen is not None:
        reading = reading_app(shell.ports)
        await parts.enter_async_context(serve_tcp(reading, *config.admin_listen))
    parts.callback(shell.tables.close)
    parts.enter_context(hangups.heard_by(shell.reloader.request))
    _log.info("controller_started", epoch=ledger.restored.epoch, rows=len(ledger.restored.rows))
    await _until_stopped(shell, stop, config.fault_linger)
    await shell.executor.aclose(config.stop_grace)
    await shell.control.flush()


async def _build(
    config: ControllerConfig,
    core_factory: CoreFactory,
    parts: contextlib.AsyncExitStack,
    ledger: Ledger,
) -> _Shell:
    restored = ledger.restored
    clock = Clock(floor=restored.last_time)
    secret = _cluster_secret(config.state_dir)
    identity = Identity(config.wishes.fleet({}, {}).cluster, restored.ledger_id)
    inbox = Inbox()
    pools = Pools(identity, config.state_dir, clock, inbox.put)
    parts.push_async_callback(pools.aclose)
    orders = OrderMaker(secret.engine_key, config.engine_ports)
    sources = SourceFile(config.state_dir)
    wiring = Wiring(config.wishes, identity, sources, pools, orders, inbox.put)
    wiring.apply(config.wishes)
    client = AgentClient(config.agent_url, secret.agent_token)
    agent = AgentOrders(await parts.enter_async_context(client), clock)
    if config.serve_again:
        inbox.put(ServeRequested("started by hand"))
    core = core_factory(restored.ledger_id, restored.epoch, restored.rows)
    tables = TableHolder(secret.engine_key)
    performer = Performer(
        identity,
        pools.providers,
        agent,
        orders,
        lambda node_id, gpus: config.bootstrap(node_id, secret.join_token(node_id), gpus),
    )
    executor = Executor(performer, inbox.put)
    control = ControlLoop(core, clock, inbox, ledger, executor, tables.publish)
    cluster = ClusterWatch(agent, clock, inbox.put, config.poll)
    picture = Picture(core, clock, restored, pools.providers)
    reloader = Reloader(config.wishes, wiring.apply, picture.machines, clock, inbox.put)
    ports = AdminPorts(
        status=lambda: picture.status(control.health, cluster, executor, reloader.summary()),
        problem=lambda: control.health.problem,
        waiting_for=lambda: picture.waiting_for(control.health, cluster),
        emit=inbox.put,
        preempt=Drill(core, clock, pools.providers).preempt,
        tables=tables,
        journal=ledger.read_journal,
        reload=reloader.reload,
    )
    eternal = {
        "cluster watch": cluster.run,
        "pools": pools.run,
        "reload": reloader.run,
        "sources": wiring.resolver.run,
    }
    return _Shell(control, executor, tables, reloader, ports, eternal)


def _cluster_secret(state_dir: Path) -> ClusterSecret:
    """Raises `UsageError`: without it nobody of ours knows another, however often we start."""
    try:
        return ClusterSecret.load_or_create(state_dir)
    except ValueError as damaged:
        raise UsageError(str(damaged)) from damaged
    except OSError as bad:
        raise UsageError(
            f"{bad.filename or state_dir}: cannot be read or made ({bad.strerror}); see that the "
            "daemon's user may read and write there"
        ) from bad


async def _until_stopped(shell: _Shell, stop: asyncio.Event, linger: float) -> None:
    """Runs the parts side by side until `stop`; any of them that ends before is a fault."""
    try:
        async with asyncio.TaskGroup() as group:
            loop = group.create_task(_lingering(shell.control, stop, linger), name="control loop")
            others = [
                group.create_task(for_ever(name, part), name=name)
                for name, part in shell.eternal.items()
            ]
            await stop.wait()
            shell.control.request_stop()
            await loop
            for task in others:
                task.cancel()
    except ExceptionGroup as faults:
        fault = _first(faults)
        if isinstance(fault, ElasticdError):
            raise fault from faults
        raise ControllerFailed(f"the controller met a fault: {fault!r}") from faults


async def _lingering(control: ControlLoop, stop: asyncio.Event, linger: float) -> None:
    """Keeps the admin API up for a moment after a fault, so that people can see what happened."""
    try:
        await control.run()
    except ElasticdError:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(linger):
                await stop.wait()
        raise


def _first(faults: BaseExceptionGroup[BaseException]) -> BaseException:
    fault = faults.exceptions[0]
    return _first(fault) if isinstance(fault, BaseExceptionGroup) else fault


@contextlib.contextmanager
def _stop_signals() -> Iterator[asyncio.Event]:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        yield stop
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
