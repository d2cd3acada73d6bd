"""The questions of an answer that goes on behind a parser: in order, and no faster than its client
reads."""

from __future__ import annotations

import asyncio
from typing import Any

from elasticd.gateway.parsed_answer import ParsedAnswer
from tests.gateway.continuation.test_parsed import generated, going_on, parsed
from tests.gateway.harness import eventually


class Generating:
    """What is generated, piece by piece, as an exchange has it."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = list(pieces)

    async def read(self) -> bytes:
        return self._pieces.pop(0)


class SlowReply:
    """A client that reads nothing until it is told to."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.reads = asyncio.Event()
        self.ended = False

    def send(self, data: bytes) -> None:
        self.sent.append(data)

    async def drain(self) -> None:
        await self.reads.wait()

    def end(self) -> None:
        self.ended = True


class Asked:
    """A replica that derenders; how many at once, and in which order."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.now = self.most = 0

    async def ask(self, call: Any) -> bytes:
        self.bodies.append(call)
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        self.now -= 1
        return parsed({"content": f"<{len(self.bodies)}>"})


class Answer(ParsedAnswer):
    """Without a client's request around it."""

    def _to(self, target: str, body: bytes) -> Any:
        return body


async def test_a_client_that_reads_slowly_holds_the_questions_up() -> None:
    reply, replica, seam = SlowReply(), Asked(), going_on()
    pieces = (generated([16]), generated([17, 18]), generated([99], "stop"))
    answer = Answer(None, reply, seam)  # type: ignore[arg-type]
    streaming = asyncio.create_task(
        answer.stream(replica, Generating(*pieces), generated([15]))  # type: ignore[arg-type]
    )
    await eventually(lambda: reply.sent, "the first piece was sent")
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(replica.bodies) == 1
    assert not reply.ended
    reply.reads.set()
    await streaming
    assert reply.ended
    assert replica.most == 1
    told = b"".join(reply.sent)
    places = [told.index(b"<%d>" % n) for n in range(1, len(replica.bodies) + 1)]
    assert places == sorted(places)
