"""The controller that only looks on: the same fault has come too often, so nothing is done.

It holds the state directory, so that no other one acts either, answers the admin API, and lists
what the providers have. Nothing is launched, ended, started, stopped, published or written; the
gateway goes on with its last table, replicas and machines go on as they are. It stays until it is
stopped: the next start tries once more.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import Any

import structlog

from elasticd.clock import Clock
from elasticd.core.events import (
    DemandSampled,
    EndpointBroken,
    Event,
    GatewayBegan,
    LoadSampled,
    RequestsMoved,
)
from elasticd.errors import ElasticdError
from elasticd.ops.admin import full_app, reading_app
from elasticd.ops.admin_http import OnlyObserved, Refused
from elasticd.ops.admin_ports import AdminPorts
from elasticd.ops.admin_site import serve_tcp, serve_unix
from elasticd.ops.hangup import Hangups
from elasticd.runtime.config import ControllerConfig
from elasticd.runtime.eternal import again_and_again
from elasticd.runtime.fault_memory import FaultMemory
from elasticd.runtime.last_picture import LastKnown, LastPicture, read_last_known
from elasticd.runtime.ledger import JournalEntry, read_journal_file
from elasticd.runtime.ports import CoreFactory
from elasticd.runtime.sightings import WHAT_TO_DO, Sightings
from elasticd.runtime.state_lock import StateLock
from elasticd.runtime.stopping import Stop
from elasticd.runtime.table_holder import TableHolder
from elasticd.threads import in_thread

_READ_LIMIT = 30.0
"""Seconds for reading the ledger."""

_LIST_AGAIN = 60.0
"""Seconds until the providers are tried again where listing them broke."""

_SAMPLES = (DemandSampled, LoadSampled, RequestsMoved, GatewayBegan, EndpointBroken)
"""What the gateway reports; it is right to, and nobody needs it now."""

_log = structlog.get_logger()


def refuse(event: Event, why: str) -> None:
    """Nobody acts on it: whoever asked is told so."""
    if not isinstance(event, _SAMPLES):
        raise Refused(409, why)


def _refuse(event: Event, why: str) -> None:
    if not isinstance(event, _SAMPLES):
        raise OnlyObserved(why)


async def observe(
    config: ControllerConfig,
    core_factory: CoreFactory,
    faults: FaultMemory,
    stop: Stop,
    hangups: Hangups,
) -> None:
    """Until it is stopped. Raises `StateDirInUse` and `AddressTaken`."""
    fault = faults.repeated
    assert fault is not None, "only a repeated fault leads here"
    async with contextlib.AsyncExitStack() as parts:
        parts.enter_context(StateLock(config.state_dir))
        stop.listen()
        _log.error(
            "observe_only",
            fault=fault.signature,
            message=fault.message,
            times=fault.times,
            effect="nothing is launched, ended, started, stopped or published any more",
            do=WHAT_TO_DO,
        )
        known = await _last_known(config)
        clock = Clock(floor=known.last_time)
        seen = Sightings(config, known, LastPicture(known, core_factory), fault, clock)
        parts.push_async_callback(seen.aclose)
        tables = TableHolder(lambda replica_id, incarnation: "")
        ports = _ports(config, seen, tables)
        await parts.enter_async_context(serve_unix(full_app(ports), config.admin_socket))
        if config.admin_listen is not None:
            await parts.enter_async_context(serve_tcp(reading_app(ports), *config.admin_listen))
        parts.callback(tables.close)
        parts.enter_context(hangups.heard_by(lambda: _log.warning("reload_ignored", why=seen.why)))
        watching = asyncio.create_task(
            again_and_again("providers", seen.watch, seen.broken, lambda _: _LIST_AGAIN)
        )
        await stop.asked.wait()
        watching.cancel()
        await asyncio.wait({watching})
        faults.allow_one_more_try()
    _log.info("observing_controller_stopped", machines="kept", next="tries once more")


async def _last_known(config: ControllerConfig) -> LastKnown:
    read = partial(read_last_known, config.state_dir)
    try:
        return await in_thread(read, _READ_LIMIT, "last known")
    except TimeoutError:
        return LastKnown(problem=f"the ledger could not be read within {_READ_LIMIT:g} s")


def _ports(config: ControllerConfig, seen: Sightings, tables: TableHolder) -> AdminPorts:
    """Everything may be read, and whoever wants to change something is told why not."""
    why_not = f"{seen.why}; {WHAT_TO_DO}"

    async def no_drill(node: str, notice: float | None, by: str) -> dict[str, Any]:
        raise OnlyObserved(why_not)

    async def no_reload(by: str) -> dict[str, Any]:
        raise OnlyObserved(why_not)

    async def journal(since_seq: int, since: float, limit: int) -> list[JournalEntry]:
        read = partial(read_journal_file, config.state_dir, since_seq, since, limit)
        try:
            return await in_thread(read, _READ_LIMIT, "journal")
        except (ElasticdError, TimeoutError) as bad:
            raise Refused(409, str(bad) or "the journal cannot be read now") from bad

    return AdminPorts(
        status=seen.status,
        problem=lambda: seen.problem,
        waiting_for=lambda: [seen.why],
        emit=lambda event: _refuse(event, why_not),
        preempt=no_drill,
        tables=tables,
        journal=journal,
        reload=no_reload,
    )
