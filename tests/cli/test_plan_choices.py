"""What pools tell, or fail to tell, and what the plan makes of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from elasticd.cli import plan_choices
from elasticd.cli.plan_choices import Plan, make_plan
from elasticd.cli.plan_subject import Subject
from elasticd.core.fit import MemorySettings, read_shape
from elasticd.provider import AuthFailed, Market, Offering, PoolContext, ProviderPlugin
from elasticd.settings.load import load
from tests.core import known_models as known

A10G = Offering("p", "zone-a", "g5.12xlarge", "A10G", 4, Market.SPOT, 2_000_000)


class NoKeys(BaseModel):
    """A provider without keys of its own."""


class Listing:
    """A provider that only lists: what it is given, an error, or nothing for ever."""

    closed = 0

    def __init__(self, answer: Sequence[Offering] | Exception | None) -> None:
        self.answer = answer

    async def offerings(self) -> Sequence[Offering]:
        if self.answer is None:
            await asyncio.Event().wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer or ()

    async def aclose(self) -> None:
        self.closed += 1


def plan(tmp_path: Path, provider: Listing, **changes: Any) -> Plan:
    def create(context: PoolContext, options: Any) -> Any:
        assert context.state_dir.is_dir()
        return provider

    path = tmp_path / "elasticd.yaml"
    path.write_text(
        f"cluster: test\nstate_dir: {tmp_path / 'state'}\n"
        "node_pools: [{name: p, provider: fake, max_nodes: 1}]\n"
        f"models: [{json.dumps({'name': 'm', 'source': 'file:weights'})}]\n"
    )
    plugins = {"fake": lambda: ProviderPlugin(NoKeys, create)}
    subject = Subject(
        name="m",
        source="file:weights",
        shape=read_shape(known.QWEN25_14B),
        settings=MemorySettings(max_model_len=32768),
        pools=("p",),
        configuration=load(path, plugins, look_on_host=False),
    )
    return make_plan(replace(subject, **changes))


def test_a_pool_that_refuses_is_told_and_known_gpus_are_looked_at(tmp_path: Path) -> None:
    provider = Listing(AuthFailed("the key is wrong"))
    made = plan(tmp_path, provider)
    assert made.notes[0] == "pool p: fake does not tell what it offers: the key is wrong"
    assert "every known GPU kind" in made.notes[1]
    assert made.holds
    assert made.cheapest == ()
    assert provider.closed == 1


def test_a_pool_that_never_answers_does_not_hold_up_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_choices, "_LISTING_TIMEOUT", 0.01)
    provider = Listing(None)
    made = plan(tmp_path, provider)
    assert made.notes[0] == "pool p: fake has not told what it offers within 0.01 s"
    assert provider.closed == 1


def test_what_is_sold_out_is_shown_and_never_the_cheapest(tmp_path: Path) -> None:
    gone = replace(A10G, zone="zone-b", price_micros=1_000_000, available=False)
    made = plan(tmp_path, Listing([gone, A10G]))
    assert [choice.offering for choice in made.choices] == [A10G, gone]
    assert [choice.offering for choice in made.cheapest] == [A10G]


def test_prices_of_different_currencies_are_not_compared(tmp_path: Path) -> None:
    yuan = replace(A10G, zone="zone-b", price_micros=9_000_000, currency="CNY")
    made = plan(tmp_path, Listing([yuan, A10G]))
    assert [choice.offering for choice in made.cheapest] == [A10G, yuan]


def test_the_cheapest_is_that_of_a_replica_not_of_a_machine(tmp_path: Path) -> None:
    pair = replace(A10G, machine_type="pair", gpu_count=2, price_micros=1_500_000)
    made = plan(tmp_path, Listing([pair, A10G]))
    assert [choice.replica_price_micros for choice in made.choices] == [1_000_000, 1_500_000]
    assert [choice.offering for choice in made.cheapest] == [A10G]


def test_memory_that_the_provider_tells_counts(tmp_path: Path) -> None:
    large = replace(A10G, gpu_memory_mib=48_000)
    assert [c.gpus for c in plan(tmp_path, Listing([large])).choices] == [1]
    assert [c.gpus for c in plan(tmp_path, Listing([A10G])).choices] == [2]


def test_a_replica_of_more_gpus_than_a_machine_has_does_not_fit(tmp_path: Path) -> None:
    (choice,) = plan(tmp_path, Listing([A10G]), gpus=8).choices
    assert not choice.holds
    assert choice.problem == "a replica takes 8 GPUs and a machine has 4"


def test_gpus_that_were_set_are_kept(tmp_path: Path) -> None:
    (choice,) = plan(tmp_path, Listing([A10G]), gpus=4).choices
    assert (choice.gpus, [result.tensor_parallel for result in choice.fits]) == (4, [4])
