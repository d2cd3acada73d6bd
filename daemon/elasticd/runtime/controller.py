"""The controller's parts list: builds everything in order, runs it, takes it apart in reverse.

Stopping (SIGTERM, SIGINT) means: no new action, what is under way may still be answered and is
written down, machines and replicas stay; a second signal waits for no answer. SIGHUP means: read
the configuration again. A fault ends the process, to be started again; the third time of the same
one it stays and only observes (`runtime.observe_only`).
"""

from __future__ import annotations

import contextlib

import structlog

from elasticd.agent_api.client import AgentClient
from elasticd.clock import Clock
from elasticd.core.events import Event, ServeRequested
from elasticd.errors import ElasticdError
from elasticd.ops.admin import full_app, reading_app
from elasticd.ops.admin_ports import AdminPorts
from elasticd.ops.admin_site import serve_tcp, serve_unix
from elasticd.ops.hangup import Hangups
from elasticd.runtime.agent_orders import AgentOrders
from elasticd.runtime.cluster_watch import ClusterWatch
from elasticd.runtime.config import ControllerConfig
from elasticd.runtime.contained import one_line
from elasticd.runtime.days import Days
from elasticd.runtime.drill import Drill
from elasticd.runtime.eternal import PartEnded
from elasticd.runtime.executor import Executor
from elasticd.runtime.fault_memory import TIMES, FaultMemory, root_of, signature_of
from elasticd.runtime.inbox import Inbox
from elasticd.runtime.ledger import Ledger
from elasticd.runtime.life import Shell, live
from elasticd.runtime.loop import ControlLoop, ControlLoopFailed
from elasticd.runtime.observe_only import observe, refuse
from elasticd.runtime.orders import OrderMaker
from elasticd.runtime.own_secret import open_secret
from elasticd.runtime.ownership import check_ownership
from elasticd.runtime.performer import Identity, Performer
from elasticd.runtime.picture import Picture
from elasticd.runtime.pools import Pools
from elasticd.runtime.ports import CoreFactory
from elasticd.runtime.recorder import Recorder
from elasticd.runtime.reload import Reloader
from elasticd.runtime.source_file import SourceFile
from elasticd.runtime.stopping import Stop
from elasticd.runtime.table_holder import TableHolder
from elasticd.runtime.wiring import Wiring

_log = structlog.get_logger()


class ControllerFailed(ElasticdError):
    """The controller met a fault that nobody foresaw."""


_FAULTS = (ControllerFailed, ControlLoopFailed, PartEnded)
"""Errors for people that tell of a fault of ours; any other one is a refusal that it explains."""


async def run_controller(
    config: ControllerConfig, core_factory: CoreFactory, hangups: Hangups | None = None
) -> None:
    """Runs until SIGTERM or SIGINT. Raises `ElasticdError` when it cannot start or go on.

    `hangups` has collected SIGHUP since the configuration was read.
    """
    hangups = hangups or Hangups()
    faults = FaultMemory(config.state_dir)
    stop = Stop()
    with stop.life():
        if not faults.only_observe:
            try:
                await _act(config, core_factory, hangups, faults, stop)
            except Exception as raised:
                _judge(raised, faults)
            else:
                return
        await observe(config, core_factory, faults, stop, hangups)


def _judge(raised: Exception, faults: FaultMemory) -> None:
    """Returns only when there is nothing left but to observe; else raises what ends the process."""
    if isinstance(raised, ElasticdError) and not isinstance(raised, _FAULTS):
        raise raised
    if not isinstance(raised, ControlLoopFailed):  # that one was noted when it happened
        faults.note(raised, Clock().now())
        _log.error("controller_failed", exc_info=raised)
    if faults.only_observe:
        return
    if isinstance(raised, ElasticdError):
        raise raised
    raise ControllerFailed(
        f"the controller met a fault: {one_line(repr(root_of(raised)))} ({signature_of(raised)}); "
        "machines and replicas go on, and the gateway with its last table. It must be started "
        f"again; the same fault {TIMES} times, and it only observes"
    ) from raised


async def _act(
    config: ControllerConfig,
    core_factory: CoreFactory,
    hangups: Hangups,
    faults: FaultMemory,
    stop: Stop,
) -> None:
    async with contextlib.AsyncExitStack() as parts:
        ledger = await Ledger.open(config.state_dir, config.journal)
        parts.push_async_callback(ledger.aclose)
        stop.listen()
        check_ownership(config.state_dir, config.wishes.fleet({}, {}), ledger.restored.rows)
        shell = await _build(config, core_factory, parts, ledger)
        parts.push_async_callback(shell.executor.aclose)
        await parts.enter_async_context(serve_unix(full_app(shell.ports), config.admin_socket))
        if config.admin_listen is not None:
            reading = reading_app(shell.ports)
            await parts.enter_async_context(serve_tcp(reading, *config.admin_listen))
        parts.callback(shell.tables.close)
        parts.enter_context(hangups.heard_by(shell.reloader.request))
        restored = ledger.restored
        _log.info("controller_started", epoch=restored.epoch, rows=len(restored.rows))
        await live(shell, stop, config, faults)
    _log.info("controller_stopped", machines="kept")


async def _build(
    config: ControllerConfig,
    core_factory: CoreFactory,
    parts: contextlib.AsyncExitStack,
    ledger: Ledger,
) -> Shell:
    restored = ledger.restored
    clock = Clock(floor=restored.last_time)
    secret = open_secret(config.state_dir)
    identity = Identity(config.wishes.fleet({}, {}).cluster, restored.ledger_id)
    inbox = Inbox()
    pools = Pools(identity, config.state_dir, clock, inbox.put)
    parts.push_async_callback(pools.aclose)
    orders = OrderMaker(secret.engine_key, config.engine_ports)
    sources = SourceFile(config.state_dir)
    days = Days(config.wishes.day_starts, clock, inbox.put)
    wiring = Wiring(config.wishes, identity, sources, pools, orders, inbox.put, days.set)
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
        lambda pool, node_id, gpus: config.bootstrap(
            node_id, secret.join_token(node_id), gpus, pools.listening(pool)
        ),
    )
    executor = Executor(performer, inbox.put)
    recorder = Recorder()
    recorder.begin(restored, core)
    control = ControlLoop(core, clock, inbox, ledger, executor, tables.publish, recorder)

    def emit(event: Event) -> None:
        if control.health.fault:
            refuse(event, f"nothing is done any more: the controller {control.health.problem}")
        inbox.put(event)

    cluster = ClusterWatch(agent, clock, inbox.put, config.poll)
    picture = Picture(core, clock, restored, pools.providers, ledger.summary)
    reloader = Reloader(config.wishes, wiring.apply, picture.machines, clock, inbox.put)
    ports = AdminPorts(
        status=lambda: picture.status(control.health, cluster, executor, reloader.summary()),
        problem=lambda: control.health.problem,
        waiting_for=lambda: picture.waiting_for(control.health, cluster),
        emit=emit,
        recorded=control.recorded,
        preempt=Drill(core, clock, pools.providers, emit).preempt,
        tables=tables,
        journal=ledger.read_journal,
        reload=reloader.reload,
        now=clock.now,
    )
    eternal = {
        "cluster watch": cluster.run,
        "days": days.run,
        "pools": pools.run,
        "reload": reloader.run,
        "sources": wiring.resolver.run,
    }
    return Shell(control, inbox, executor, tables, reloader, ports, eternal)
