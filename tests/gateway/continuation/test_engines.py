"""What is known of engines: only what can be, from whoever tells it, and asked for again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import structlog.testing

from elasticd.gateway.continuation import engines as module
from elasticd.gateway.continuation.engine import NoFacts, facts_of
from elasticd.gateway.continuation.engines import FACTS, Engines
from elasticd.gateway.failures import ReplicaLost
from elasticd.routing_table import Endpoint, RoutingTable, Tier
from tests.gateway.continuation.engine import tokenizer
from tests.gateway.harness import eventually
from tests.traffic.tables import endpoint, route, table

DOCUMENT: dict[str, Any] = {
    "v": 1,
    "tokenizer": True,
    "parser": False,
    "scale_out": True,
    "reasoning": False,
    "fingerprint": "f",
    "max_model_len": 4096,
    "max_tokens": None,
    "most_tokens": 7,
    "always_usage": False,
    "penalties": False,
}
GOOD = json.dumps(DOCUMENT).encode()
TOKENIZER = tokenizer().to_str().encode()
NONE = [None, b"", b"hi", b"{}", b"[" * 100_000, b"\xff", GOOD.replace(b"4096", b"0")]


def told(**changes: Any) -> bytes:
    return json.dumps({**DOCUMENT, **changes}).encode()


class Guards:
    """What each replica answers when its facts are asked for; text: it does not."""

    def __init__(self, **answers: bytes | str | None) -> None:
        self.answers = answers
        self.asked: list[str] = []
        self.tokenizer: bytes | None = TOKENIZER
        self.gate: Callable[[], Awaitable[object]] = lambda: asyncio.sleep(0)

    async def fetch(self, endpoint: Endpoint, path: str) -> bytes | None:
        if path != FACTS:
            return self.tokenizer
        self.asked.append(endpoint.replica_id)
        await self.gate()
        answer = self.answers[endpoint.replica_id]
        if isinstance(answer, str):
            raise ReplicaLost(answer)
        return answer


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long it would have waited before each further round."""
    waited: list[float] = []

    async def at_once(seconds: float, event: asyncio.Event) -> bool:
        waited.append(seconds)
        await asyncio.sleep(0)
        return event.is_set()

    monkeypatch.setattr(module, "_within", at_once)
    return waited


def listed(*names: str, continues: bool = True, tier: Tier = Tier.OPEN) -> RoutingTable:
    return table(route(*(endpoint(n, tier=tier) for n in names), continues=continues))


def test_all_that_an_engine_tells_is_known() -> None:
    facts = facts_of(GOOD, TOKENIZER)
    assert (facts.max_model_len, facts.max_tokens, facts.most_tokens) == (4096, None, 7)
    assert (facts.fingerprint, facts.scale_out, facts.parser) == ("f", True, False)
    assert facts.vocabulary >= tokenizer().get_vocab_size()


def test_an_engine_of_an_older_version_need_not_tell_all() -> None:
    older = {k: v for k, v in DOCUMENT.items() if k not in ("scale_out", "reasoning")}
    facts = facts_of(json.dumps(older).encode(), TOKENIZER)
    assert (facts.scale_out, facts.reasoning) == (False, False)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("v", 2),
        ("v", True),
        ("tokenizer", False),
        ("max_model_len", 0),
        ("max_model_len", -5),
        ("max_model_len", "4096"),
        ("max_model_len", 4096.0),
        ("max_model_len", None),
        ("max_tokens", "12"),
        ("max_tokens", 0),
        ("max_tokens", True),
        ("most_tokens", [1]),
        ("most_tokens", -1),
        ("parser", "no"),
        ("scale_out", 1),
        ("reasoning", None),
        ("always_usage", "y"),
        ("penalties", 0),
        ("fingerprint", 5),
    ],
)
def test_facts_that_cannot_be_are_none(name: str, value: Any) -> None:
    with pytest.raises(NoFacts):
        facts_of(told(**{name: value}), TOKENIZER)


@pytest.mark.parametrize("document", [d for d in NONE if d is not None])
def test_a_document_that_is_none_is_no_fact(document: bytes) -> None:
    with pytest.raises(NoFacts):
        facts_of(document, TOKENIZER)


@pytest.mark.parametrize("bad", [b"", b"{}", b"\xff", b"[" * 100_000])
def test_without_a_tokenizer_there_are_no_facts(bad: bytes) -> None:
    with pytest.raises(NoFacts, match="tokenizer"):
        facts_of(GOOD, bad)


@pytest.mark.parametrize("none", NONE, ids=lambda n: repr(n)[:12])
async def test_who_has_answered_badly_once_is_asked_again(
    none: bytes | None, pauses: list[float]
) -> None:
    guards = Guards(a=none)
    engines = Engines(guards)
    engines.follow(listed("a"))
    await eventually(lambda: len(guards.asked) > 2, "it is asked again")
    guards.answers["a"] = GOOD
    await eventually(lambda: engines.facts("hash"), "it is known")
    engines.close()


async def test_where_one_replica_tells_nothing_the_others_are_asked_at_once() -> None:
    guards = Guards(a=None, b="refused", c=GOOD)
    engines = Engines(guards)
    engines.follow(listed("a", "b", "c"))
    assert await engines.known("hash", 10) is not None
    assert guards.asked == ["a", "b", "c"]


async def test_a_replica_that_is_new_is_asked_at_once() -> None:
    guards = Guards(a=None, b=GOOD)
    engines = Engines(guards)
    engines.follow(listed("a"))
    assert await engines.known("hash", 10) is None
    engines.follow(listed("a", "b"))
    await eventually(lambda: engines.facts("hash"), "it is known")
    assert guards.asked in (["a", "a", "b"], ["a", "b"])


async def test_who_tells_nothing_is_asked_more_and_more_rarely(pauses: list[float]) -> None:
    guards = Guards(a=None)
    engines = Engines(guards)
    with structlog.testing.capture_logs() as logs:
        engines.follow(listed("a"))
        await eventually(lambda: len(pauses) > 7, "it is asked again and again")
    engines.close()
    assert pauses[:8] == [2, 4, 8, 16, 32, 60, 60, 60]
    assert len(logs) == 1, "one line for the spec, not one for each time"
    assert (logs[0]["spec"], logs[0]["replica"]) == ("hash", "a")


async def test_who_does_not_answer_is_asked_at_the_same_pace(pauses: list[float]) -> None:
    engines = Engines(Guards(a="refused"))
    engines.follow(listed("a"))
    await eventually(lambda: len(pauses) > 3, "it is asked again and again")
    engines.close()
    assert pauses[:4] == [2, 2, 2, 2]


async def test_a_spec_that_left_the_table_is_asked_no_more_and_may_come_back() -> None:
    guards = Guards(a=None)
    engines = Engines(guards)
    engines.follow(listed("a"))
    assert await engines.known("hash", 10) is None
    engines.follow(listed())
    guards.answers["a"] = GOOD
    await eventually(lambda: not engines._asking, "nobody is asked any more")
    assert guards.asked == ["a"]
    engines.follow(listed("a"))
    assert await engines.known("hash", 10) is not None


async def _at_once(known: Awaitable[Any]) -> Any:
    """Fails if it waits for anything at all."""
    with pytest.raises(StopIteration) as done:
        known.__await__().send(None)  # type: ignore[attr-defined]
    return done.value.value


async def test_what_is_known_is_told_at_once() -> None:
    engines = Engines(Guards(a=GOOD))
    engines.follow(listed("a"))
    facts = await engines.known("hash", 10)
    assert facts is not None
    assert await _at_once(engines.known("hash", 10)) is facts


@pytest.mark.parametrize("answer", [None, b"garbage", "it does not answer"])
async def test_where_all_were_asked_once_in_vain_nobody_waits(answer: bytes | str | None) -> None:
    engines = Engines(Guards(a=answer))
    engines.follow(listed("a"))
    assert await engines.known("hash", 10) is None
    assert await _at_once(engines.known("hash", 10)) is None
    engines.close()


@pytest.mark.parametrize(
    "followed", [listed(), listed("a", continues=False), listed("a", tier=Tier.CLOSED)]
)
async def test_for_engines_that_nobody_asks_nobody_waits(followed: RoutingTable) -> None:
    guards = Guards(a=GOOD)
    engines = Engines(guards)
    engines.follow(followed)
    assert await _at_once(engines.known("hash", 10)) is None
    assert guards.asked == []


async def test_nobody_waits_longer_than_he_would() -> None:
    guards, gate = Guards(a=GOOD), asyncio.Event()
    guards.gate = gate.wait
    engines = Engines(guards)
    engines.follow(listed("a"))
    assert await engines.known("hash", 0.01) is None
    gate.set()
    assert await engines.known("hash", 10) is not None


async def test_who_waits_for_a_spec_that_leaves_waits_no_more() -> None:
    guards, gate = Guards(a="refused"), asyncio.Event()
    guards.gate = gate.wait
    engines = Engines(guards)
    engines.follow(listed("a"))
    waiting = asyncio.create_task(engines.known("hash", 60))
    await eventually(lambda: guards.asked, "it is asked")
    engines.follow(listed())
    gate.set()
    assert await waiting is None
