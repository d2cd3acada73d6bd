"""The life of a controller's parts once they are built: until a signal, or until a fault.

After a fault nothing is decided any more, and what is said of it here is all that is done.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from elasticd.clock import Clock
from elasticd.core.events import (
    LaunchAnswered,
    LaunchFailed,
    TerminateAnswered,
    TerminateFailed,
)
from elasticd.errors import ElasticdError
from elasticd.ops.admin_ports import AdminPorts
from elasticd.runtime.config import ControllerConfig
from elasticd.runtime.contained import one_line
from elasticd.runtime.eternal import Eternal, for_ever
from elasticd.runtime.executor import Executor
from elasticd.runtime.fault_memory import FaultMemory
from elasticd.runtime.inbox import Inbox
from elasticd.runtime.loop import ControlLoop, ControlLoopFailed
from elasticd.runtime.reload import Reloader
from elasticd.runtime.stopping import Stop
from elasticd.runtime.table_holder import TableHolder

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Shell:
    """What moves, once built."""

    control: ControlLoop
    inbox: Inbox
    executor: Executor
    tables: TableHolder
    reloader: Reloader
    ports: AdminPorts
    eternal: Mapping[str, Eternal]


async def live(shell: Shell, stop: Stop, config: ControllerConfig, faults: FaultMemory) -> None:
    """Until `stop`. What is under way then may still be answered, and that is written down.

    Raises whatever a part has failed with; the control loop's own faults are in `faults` by then.
    """
    try:
        await _until_stopped(shell, stop, config, faults)
    except Exception:
        await _answers(shell.executor, config.stop_grace, stop)
        _tell_unrecorded(shell.inbox)
        raise
    await _answers(shell.executor, config.stop_grace, stop)
    try:
        await shell.control.flush()
    except ControlLoopFailed as fault:
        faults.note(fault, Clock().now())
        raise


async def _until_stopped(
    shell: Shell, stop: Stop, config: ControllerConfig, faults: FaultMemory
) -> None:
    """Runs the parts side by side until `stop`; any of them that ends before is a fault."""
    try:
        async with asyncio.TaskGroup() as group:
            loop = group.create_task(
                _lingering(shell.control, stop, config.fault_linger, faults), name="control loop"
            )
            others = [
                group.create_task(for_ever(name, part), name=name)
                for name, part in shell.eternal.items()
            ]
            others.append(group.create_task(_forget(faults, config.healthy_after), name="faults"))
            await stop.asked.wait()
            shell.control.request_stop()
            await loop
            for task in others:
                task.cancel()
    except ExceptionGroup as several:
        fault = _first(several)
        if isinstance(fault, ElasticdError):
            raise fault from several
        raise fault from fault.__cause__


async def _lingering(control: ControlLoop, stop: Stop, linger: float, faults: FaultMemory) -> None:
    """Keeps the admin API up for a moment after a fault, so that people can see what happened."""
    try:
        await control.run()
    except ControlLoopFailed as fault:
        faults.note(fault, Clock().now())
        if not faults.only_observe:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(linger):
                    await stop.asked.wait()
        raise


async def _forget(faults: FaultMemory, healthy_after: float) -> None:
    await asyncio.sleep(healthy_after)
    faults.clear()


async def _answers(executor: Executor, grace: float, stop: Stop) -> None:
    """Waits for what was asked, unless there is a hurry; what has no answer is asked again."""
    closing = asyncio.ensure_future(executor.aclose(grace))
    hurried = asyncio.ensure_future(stop.hurry.wait())
    await asyncio.wait({closing, hurried}, return_when=asyncio.FIRST_COMPLETED)
    hurried.cancel()
    if not closing.done():
        await executor.aclose()
    await closing


def _tell_unrecorded(inbox: Inbox) -> None:
    """Answers that came after the fault. The ledger has the intentions, and what was asked is
    asked again; a core that failed must not decide what these mean."""
    for event in inbox.take_now():
        if isinstance(event, LaunchAnswered | LaunchFailed | TerminateAnswered | TerminateFailed):
            _log.warning("answer_after_fault", answer=one_line(repr(event)))


def _first(faults: BaseExceptionGroup[BaseException]) -> BaseException:
    fault = faults.exceptions[0]
    return _first(fault) if isinstance(fault, BaseExceptionGroup) else fault
