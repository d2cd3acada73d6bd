"""The gateway process: its parts list, its signals, and its end.

It starts from the table on disk, follows the controller, takes new limits and keys while it runs,
and when it is told to stop finishes what runs within a limit.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from types import TracebackType
from typing import Self

import structlog

from elasticd.clock import Clock
from elasticd.errors import ElasticdError
from elasticd.gateway.aside import Aside
from elasticd.gateway.config import GatewayConfig
from elasticd.gateway.continuation.engines import Engines
from elasticd.gateway.desk import Desk
from elasticd.gateway.dispatcher import Dispatcher
from elasticd.gateway.edge import site_of
from elasticd.gateway.feed import ControllerLink, TableFeed
from elasticd.gateway.front import Front
from elasticd.gateway.http.server_protocol import ClientConnection, watch_over_clients
from elasticd.gateway.keys import KeyRing
from elasticd.gateway.leaving import Leaving
from elasticd.gateway.loop import calm_garbage_collection
from elasticd.gateway.outcomes import Outcomes
from elasticd.gateway.relay import Relay
from elasticd.gateway.reporter import Reporter
from elasticd.gateway.table_store import load_table
from elasticd.ops import limits
from elasticd.ops.door import Door
from elasticd.ops.inherited import BACKLOG, bound, inherited
from elasticd.routing_table import RoutingTable
from elasticd.threads import in_thread
from elasticd.traffic.admission import Admission

_log = structlog.get_logger("elasticd.gateway")

_STOP = (signal.SIGTERM, signal.SIGINT)

_READING = 30.0
"""Seconds that reading a configuration again may take; then the old one stays."""


async def run_gateway(
    config: GatewayConfig, read_again: Callable[[], GatewayConfig] | None = None
) -> None:
    """Serves until SIGTERM or SIGINT, then finishes what runs.

    SIGHUP puts in force what `read_again` gives; what cannot be read, or is refused, changes
    nothing. Without `read_again` the signal is ignored.
    """
    stop, hang_up = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in _STOP:
        loop.add_signal_handler(name, stop.set)
    loop.add_signal_handler(signal.SIGHUP, hang_up.set)
    try:
        async with Gateway(config) as gateway, asyncio.TaskGroup() as tasks:
            reloading = tasks.create_task(_reload_for_ever(gateway, hang_up, read_again))
            calm_garbage_collection()
            await stop.wait()
            reloading.cancel()
            _log.info("gateway stopping", limit=gateway.config.drain_timeout)
    finally:
        for name in (*_STOP, signal.SIGHUP):
            loop.remove_signal_handler(name)


async def _reload_for_ever(
    gateway: Gateway, hang_up: asyncio.Event, read_again: Callable[[], GatewayConfig] | None
) -> None:
    while True:
        await hang_up.wait()
        hang_up.clear()
        if read_again is None:
            continue
        try:
            gateway.reconfigure(await in_thread(read_again, _READING, "reload"))
        except ElasticdError as bad:
            _log.error("new configuration refused, the old one stays", error=str(bad))
        except Exception:
            # Whatever is wrong with the file or with reading it: clients must not notice.
            _log.exception("new configuration not read, the old one stays")


class Gateway:
    """A gateway that serves while its `async with` block runs; `port` is the one it got."""

    def __init__(self, config: GatewayConfig) -> None:
        self.config = config
        self.port = config.port
        self._stack = AsyncExitStack()

    @property
    def stopping(self) -> bool:
        """Whether it takes no more requests."""
        return self._front.stopping

    def reconfigure(self, new: GatewayConfig) -> None:
        """Puts other keys and limits in force, for requests that come from now on.

        The rest, where it listens above all, needs a restart. Raises `UsageError`, and changes
        nothing, where the new keys do not fit the address it listens on: taking the last key away
        from a gateway that is reachable from outside would open it to everybody.
        """
        self.config = replace(
            self.config,
            api_keys=new.api_keys,
            idle_timeout=new.idle_timeout,
            stall_after=new.stall_after,
            first_byte_timeout=new.first_byte_timeout,
            body_timeout=new.body_timeout,
            max_body=new.max_body,
            drain_timeout=new.drain_timeout,
        )
        self._keys.replace(self.config.api_keys)
        self._front.reconfigure(self.config)
        self._dispatcher.reconfigure(self.config)
        _log.info("new configuration in force", keys=[key.name for key in self.config.api_keys])

    async def __aenter__(self) -> Self:
        """Builds everything in order; it is taken down in reverse."""
        config, stack = self.config, self._stack
        async with stack:
            admission = Admission()
            link = ControllerLink(config.admin_socket)
            stack.push_async_callback(link.aclose)
            relay = Relay(config.connect_timeout)
            stack.push_async_callback(relay.aclose)
            outcomes, clock = Outcomes(), Clock()
            reporter = Reporter(link, admission, outcomes)
            desk = Desk(admission, clock.now, reporter.poke)
            stack.callback(desk.close)

            asides = Aside(relay, desk, reporter)
            leaving = Leaving(desk, asides)
            stack.callback(leaving.close)
            loop = asyncio.get_running_loop()
            self.engines = engines = Engines(relay)
            stack.callback(engines.close)

            def apply(table: RoutingTable) -> None:
                desk.apply(table)
                engines.follow(table)
                leaving.follow(table, ahead=clock.now() - loop.time())
                relay.follow(table)

            table = load_table(config.table_file)
            if table is not None:
                apply(table)
            self._dispatcher = Dispatcher(
                config, desk, relay, engines, reporter, outcomes, leaving, asides
            )
            stack.callback(self._dispatcher.close)
            self._keys = KeyRing(config.api_keys)
            self._front = Front(config, lambda: admission.table, self._keys, self._dispatcher)
            tasks = await stack.enter_async_context(asyncio.TaskGroup())
            feed = TableFeed(link, config.table_file, table, apply, clock.now)
            for work, name in ((feed.run(), "table feed"), (reporter.run(), "reporter")):
                stack.callback(tasks.create_task(work, name=name).cancel)
            await self._listen(stack)
            self._stack = stack.pop_all()
        _log.info("gateway listening", host=config.host, port=self.port, table=table is not None)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    async def _listen(self, stack: AsyncExitStack) -> None:
        config = self.config
        self._site = site = site_of(self._front.handle, config.max_header)
        stack.push_async_callback(site.aclose)
        sockets = await _listening(config.host, config.port)
        for sock in sockets:
            watch_over_clients(sock)
        door = Door(
            "gateway", sockets, lambda: ClientConnection(site), limits.relayed_connections()
        )
        stack.callback(door.close)
        door.open(BACKLOG)
        stack.push_async_callback(self._drain, door)
        self.port = sockets[0].getsockname()[1]

    async def _drain(self, door: Door) -> None:
        """Whoever still gets through after this is told to go elsewhere."""
        self._front.stopping = self._site.stopping = True
        door.close()
        await self._front.drain(self.config.drain_timeout)


async def _listening(host: str, port: int) -> list[socket.socket]:
    """Those that were handed down to us, or our own. Raises `OSError`."""
    if handed := inherited():
        return handed
    try:
        return await asyncio.to_thread(bound, host, port)
    except OSError as failed:
        raise OSError(failed.errno, f"gateway.listen {host}:{port}: {failed.strerror}") from failed
