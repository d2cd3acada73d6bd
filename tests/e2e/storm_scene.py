"""One stack under a storm: what is asked of it, who is struck, and what the clients were told."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from tokenizers import Tokenizer

from elasticd.demo.stack import Stack, Status
from elasticd.settings.paths import demo_model_dir
from tests.e2e.storm_brakes import Brakes
from tests.e2e.storm_clients import Client, Told
from tests.e2e.storm_figures import Figures
from tests.e2e.storm_questions import Question
from tests.e2e.storm_strikes import (
    Kind,
    Successor,
    Trigger,
    first_of,
    gateway_events,
    kill_engine,
    kill_machine,
    node_of,
)

MODEL, REPLICAS = "tiny", 3
STREAMS, BURST = 16, 6
"""Streams side by side at each strike, and requests that are sent in the moment of it."""
_WITHOUT_IDS = 3
"""So many of the streams are asked without token ids, as most clients ask."""
_AGAIN = 900.0
"""Engines that are killed while they are young look like starts that fail: pauses grow."""


class Scene:
    """The strikes, on a stack that serves. `slow`: the folder of its engines' brakes."""

    def __init__(
        self, stack: Stack, slow: Path, choice: random.Random, questions: Sequence[Question]
    ) -> None:
        self._stack = stack
        self._slow = slow
        self._choice = choice
        self._client = Client(stack.url, MODEL)
        self._questions = [q for q in questions if not q.quick]
        self._quick = [q for q in questions if q.quick]
        self._left: list[Question] = []
        self._expected: dict[str, Told] = {}
        self._tokenizer = Tokenizer.from_file(str(demo_model_dir() / "tokenizer.json"))
        self._parsed = any(q.parsed for q in questions)
        self._late: list[asyncio.Task[None]] = []
        self._struck: set[str] = set()
        self.figures = Figures()

    async def aclose(self) -> None:
        for task in self._late:
            task.cancel()
        await self._client.aclose()

    @property
    def _log(self) -> Path:
        return self._stack.state_dir / "logs" / "gateway.log"

    async def undisturbed(self) -> None:
        """Every question twice, several at a time as under the storm."""
        gate = asyncio.Semaphore(STREAMS)

        async def ask(question: Question) -> Told:
            async with gate:
                return await self._client.ask(question)

        asked = list({q.name: q for q in (*self._questions, *self._quick)}.values())
        first = await asyncio.gather(*map(ask, asked))
        second = await asyncio.gather(*map(ask, asked))
        for one, two in zip(first, second, strict=True):
            assert not one.error, one.error
            self._expected[one.question.name] = one
            self.figures.base_asked += 1
            self.figures.base_differ += one.meaning != two.meaning

    async def strike(self, kind: Kind) -> None:
        """One, under streams; a long notice goes on beside the strikes after it."""
        waited = await self._stack.until("three replicas serve", self._whole, _AGAIN)
        nodes = await node_of(self._stack)
        brakes = Brakes(self._slow, nodes.keys() - self._struck, self._middling())
        trigger = Trigger(self._choice, in_call=self._parsed and self._choice.random() < 0.5)
        successor = Successor(self._log)
        streams = self._streams(trigger, successor)
        await first_of(trigger.struck, asyncio.gather(*streams))
        victim = trigger.struck.result() if trigger.struck.done() else self._any_but("")
        quick = [self._choice.choice(self._quick) for _ in range(BURST)]
        burst = [asyncio.create_task(self._client.ask(q)) for q in quick]
        await asyncio.sleep(0.2)  # they are with their replicas, and not answered
        await self._hurt(kind, victim, nodes)
        if kind.notice is not None:
            brakes.hold_longer(victim, kind.notice)
        if kind is Kind.SUCCESSOR:
            await first_of(successor.found, asyncio.gather(*streams))
            if successor.found.done():
                kill_engine(self._stack, successor.found.result())
                self._is_struck(successor.found.result())
        brakes.release(but=victim if kind.notice is not None else None)
        record = {"kind": kind.value, "waited": round(waited, 1), "victim": victim}
        ending = self._ending(record, [*streams, *burst], brakes)
        if kind is Kind.NOTICE_120:
            self._late.append(asyncio.create_task(ending))
        else:
            await ending

    def _streams(self, trigger: Trigger, successor: Successor) -> list[asyncio.Task[Told]]:
        def heard(told: Told) -> None:
            trigger.heard(told)
            successor.heard(told)

        asked = [self._next() for _ in range(STREAMS)]
        return [
            asyncio.create_task(self._client.ask(q, n >= _WITHOUT_IDS, heard))
            for n, q in enumerate(asked)
        ]

    async def settle(self) -> None:
        """The ends of long notices; then what elasticd itself says came of it all."""
        for task in self._late:
            await task
        status = await self._stack.status()
        self.figures.departures = list(status["departures"]) if status else []

    def count_restarted(self) -> None:
        """Requests that met a loss before their first byte, as the gateway tells it."""
        again = [e for e in gateway_events(self._log) if "before the first byte" in e["event"]]
        self.figures.restarted = len({e["request_id"] for e in again})

    async def _hurt(self, kind: Kind, victim: str, nodes: dict[str, str]) -> None:
        self._is_struck(victim)
        if kind.notice is not None:
            await self._stack.preempt(nodes[victim], kind.notice)
        elif kind is Kind.ENGINE:
            kill_engine(self._stack, victim)
        else:
            kill_machine(self._stack, nodes[victim])
        if kind is Kind.TWO:
            other = self._any_but(victim)
            kill_machine(self._stack, nodes[other])
            self._is_struck(other)

    def _is_struck(self, replica_id: str) -> None:
        self._struck.add(replica_id)
        self.figures.kills += 1

    async def _ending(
        self, record: dict[str, Any], asked: list[asyncio.Task[Told]], brakes: Brakes
    ) -> None:
        began = time.monotonic()
        told = await asyncio.gather(*asked)
        brakes.release()
        for one in told:
            self._account(one)
        there = [t for t in told if t.replica == record["victim"] and not t.question.quick]
        self.figures.strikes.append(
            record
            | {
                "seconds": round(time.monotonic() - began, 1),
                "streams_there": len(there),
                "continued": sum(bool(t.seams) for t in told),
                "twice": sum(len(t.seams) > 1 for t in told),
            }
        )

    def _middling(self) -> float:
        """Tokens of a stream, with as many longer ones as shorter ones."""
        streams = [self._expected[q.name] for q in self._questions]
        return float(median(one.usage["completion_tokens"] for one in streams))

    def _next(self) -> Question:
        if not self._left:
            self._left = list(self._questions)
            self._choice.shuffle(self._left)
        return self._left.pop()

    def _whole(self, status: Status) -> bool:
        """All replicas serve, and what was struck is known to be gone."""
        gone = all(r["id"] not in self._struck for r in status["replicas"] if r["phase"] == "ready")
        return gone and serving(status)

    def _any_but(self, beside: str) -> str:
        living = set(self._stack.engines()) - self._struck
        return self._choice.choice(sorted(living - {beside}))

    def _account(self, told: Told) -> None:
        figures, name = self.figures, told.question.name
        if told.error:
            figures.lost.append(f"{name}: {told.error}")
            return
        expected = self._expected[name]
        figures.answered += 1
        figures.leaked += told.leaks
        figures.doubled += told.done > 1 or len(told.ends) > 1 or _longer(told, expected)
        if told.meaning != expected.meaning:
            seams = [seam.ids for seam in told.seams]
            figures.differ.append(f"{name} at {seams}: {told.meaning} / {expected.meaning}")
        if told.seams:
            figures.continued += 1
            figures.stop += told.question.stop
            figures.parser += told.question.parsed
            figures.in_tool_call += any(seam.in_call for seam in told.seams)
            figures.twice += len(told.seams) > 1
            figures.inside += any(self._is_inside(told.ids[: s.ids]) for s in told.seams if s.ids)

    def _is_inside(self, ids: list[int]) -> bool:
        """Whether the ids end in the middle of a character."""
        text = self._tokenizer.decode(ids, skip_special_tokens=False)
        return bool(text.endswith("\ufffd"))


def _longer(one: Told, other: Told) -> bool:
    return any(len(str(a)) > len(str(b)) for a, b in zip(one.words, other.words, strict=True))


def serving(status: Status) -> bool:
    """All replicas are ready, and it is known."""
    ready = [r for r in status["replicas"] if r["phase"] == "ready"]
    return len(ready) == REPLICAS and bool(status["cluster_complete"])
