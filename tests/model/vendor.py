"""The cloud behind a wire. Whatever a caller has sent arrives, also when the caller has died.

A call takes a moment on its way and one back; what happens at the vendor's side happens at its
time, in the world and not in the caller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from elasticd.provider import Unavailable
from elasticd_providers.fake.calls import Call, CallRecord
from elasticd_providers.fake.catalog import Settings
from elasticd_providers.fake.client import Reply
from elasticd_providers.fake.cloud import Cloud
from elasticd_providers.fake.desk import Desk
from elasticd_providers.fake.faults import CallFault
from elasticd_providers.fake.routes import call_of
from tests.model.effects import USED, count_world, ill, showed
from tests.model.loop import ModelLoop, Timers

_TOKEN = "token-of-the-account"
_WAY = 0.05
"""Seconds that a call, or an answer, is on its way."""

_NOT_DONE = ("dropped", "hang")
_NO_ANSWER = ("hang_after",)

Point = Callable[[str], Awaitable[None]]
"""A place in a controller's life at which it may die."""


@dataclass(frozen=True, slots=True)
class Done:
    """When a call arrived, and with which status it is answered."""

    arrived: float
    status: int


class Watcher(Protocol):
    """Who keeps the books."""

    def calling(self, account: Account, pool: str, call: Call, fault: CallFault | None) -> None: ...

    def carried_out(self, account: Account, pool: str, call: Call, done: Done) -> None: ...


@dataclass(slots=True)
class _Asked:
    """A call under way, and whom it is to be answered."""

    call: Call
    pool: str
    answer: asyncio.Future[Reply]
    fault: CallFault | None = None
    record: CallRecord | None = None


class Account:
    """One customer's account at the vendor."""

    def __init__(self, name: str, timers: Timers, settings: Settings, watcher: Watcher) -> None:
        self.name = name
        self._timers = timers
        self._watcher = watcher
        self.desk = Desk(Cloud(lambda: timers.now, settings), _TOKEN)
        self._slow = 0

    @property
    def cloud(self) -> Cloud:
        """The truth."""
        return self.desk.cloud

    @property
    def ill(self) -> bool:
        """Whether anything is wrong with it, or going to be."""
        return ill(self.desk)

    @property
    def delivering(self) -> bool:
        """Whether something that was asked for long ago may still come."""
        now = self.cloud.now
        return self._slow > 0 or any(m.state(now) == "ordered" for m in self.cloud.machines())

    def suffer(self, **faults: Any) -> None:
        """A vice of the world, from now on."""
        self.cloud.faults = self.cloud.faults.model_copy(update=faults)

    def mislead(self, fault: CallFault) -> None:
        """One more entry in the script of calls that go wrong."""
        self.suffer(calls=(*self.cloud.faults.calls, fault))

    def send(self, call: Call, pool: str, answer: asyncio.Future[Reply]) -> None:
        """On its way."""
        asked = _Asked(call, pool, answer)
        self._timers.after(_WAY, lambda: self._arrive(asked))

    def _arrive(self, asked: _Asked) -> None:
        asked.fault, asked.record = self.desk.take(asked.call)
        self._watcher.calling(self, asked.pool, asked.call, asked.fault)
        effect = "" if asked.fault is None else asked.fault.effect
        if effect in _NOT_DONE:
            USED[effect] += 1
            self._cut(asked, effect == "dropped")
        elif effect == "slow" and asked.fault is not None:
            self._slow += 1
            self._timers.after(asked.fault.seconds, lambda: self._at_last(asked))
        else:
            self._carry_out(asked)

    def _at_last(self, asked: _Asked) -> None:
        self._slow -= 1
        self._carry_out(asked)

    def _carry_out(self, asked: _Asked) -> None:
        assert asked.record is not None
        fault, call = asked.fault, asked.call
        count_world(self.cloud, call)
        told = self.desk.answer(call, fault, asked.record)
        if fault is not None:
            USED[fault.effect] += showed(self.desk, call, fault, told.body) or fault.effect in (
                "slow",
                "delayed",
                "lost",
                "hang_after",
            )
        self._watcher.carried_out(self, asked.pool, call, Done(asked.record.at, told.status))
        effect = "" if fault is None else fault.effect
        if effect == "lost":
            self._cut(asked, True)
        elif effect not in _NO_ANSWER:
            late = fault.seconds if fault is not None and effect == "delayed" else 0.0
            reply = Reply(told.status, told.body, told.headers)
            self._timers.after(_WAY + late, lambda: self._reply(asked, reply))

    def _cut(self, asked: _Asked, heard: bool) -> None:
        if heard and _waits(asked.answer):
            asked.answer.set_exception(Unavailable("the connection was closed"))

    def _reply(self, asked: _Asked, reply: Reply) -> None:
        if _waits(asked.answer):
            asked.answer.set_result(reply)


def _waits(answer: asyncio.Future[Reply]) -> bool:
    loop = answer.get_loop()
    assert isinstance(loop, ModelLoop)
    return not loop.cut and not answer.done()


class ModelWire:
    """The wire of one pool in one life of the controller. `timeout` as that of the real one."""

    def __init__(self, account: Account, pool: str, timeout: float, point: Point) -> None:
        self._account = account
        self._pool = pool
        self._timeout = timeout
        self._point = point

    async def send(
        self, method: str, path: str, query: Mapping[str, str], body: Mapping[str, Any] | None
    ) -> Reply:
        call = call_of(method, path, query, body, _TOKEN)
        assert call is not None, f"the vendor has no {method} {path}"
        await self._point(f"before {call.operation}")
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._account.send(call, self._pool, answer)
        await self._point(f"during {call.operation}")
        try:
            async with asyncio.timeout(self._timeout):
                reply = await answer
        except TimeoutError as late:
            raise Unavailable(f"{method} {path}: no answer within {self._timeout:g} s") from late
        await self._point(f"after {call.operation}")
        return reply

    async def aclose(self) -> None:
        """Nothing is held."""
