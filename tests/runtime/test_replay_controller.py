"""A whole controller's journal: replayed in every life, and without a secret in it."""

from __future__ import annotations

import gzip
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from elasticd.cluster_secret import ClusterSecret
from elasticd.core.decide import Core
from elasticd.runtime.journal_files import export, ledger_entries
from elasticd.runtime.journal_quiet import unpacked
from elasticd.runtime.replay import replay
from tests.runtime.world import World, agent_of, config, living

SECRET_ENV = (("HF_TOKEN", "hf_a-token-that-only-nodes-may-know"),)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
async def agent_url(world: World) -> AsyncIterator[str]:
    async with agent_of(world) as url:
        yield url


def serves(status: Any) -> bool:
    return any(model["ready"] >= 1 for model in status["models"])


async def test_both_lives_of_a_controller_are_decided_again_and_hold_no_secret(
    world: World, agent_url: str, tmp_path: Path
) -> None:
    settings = config(world, tmp_path, agent_url)
    settings = replace(settings, wishes=replace(settings.wishes, env=SECRET_ENV))
    async with living(settings, Core) as operator:
        await operator.until(serves)
        for sample in range(3):
            report = {"v": 1, "models": [_sample(sample)], "loads": []}
            await operator.ask("POST", "/internal/v1/report", json=report)
    async with living(settings, Core) as operator:
        await operator.until(serves)
        world.kill(next(iter(world.machines)))
        await operator.until(lambda status: len(world.launched) == 2 and serves(status))
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as db:
        entries = list(ledger_entries(db))
    report = replay(entries)
    assert (report.differences, report.skipped) == ([], [])
    assert [(life.epoch, life.whole) for life in report.lives] == [(1, True), (2, True)]
    assert export(entries, len(entries), tmp_path / "journal.gz").hidden == 0
    told = gzip.decompress((tmp_path / "journal.gz").read_bytes()).decode()
    told += "".join(line for entry in entries for line in unpacked(entry.quiet))
    for secret in _secrets(tmp_path, world):
        assert secret not in told


def _sample(n: int) -> dict[str, Any]:
    return {"model": "tiny", "queued": 0, "in_flight": n, "peak": n, "arrivals": n}


def _secrets(state_dir: Path, world: World) -> list[str]:
    """All that the controller knows and must tell nobody."""
    secret = ClusterSecret.load_or_create(state_dir)
    nodes = [request.node_id for request in world.launched]
    engines = [engine.key for engine in world.engines.values()]
    found = [secret.agent_token, *map(secret.join_token, nodes), *engines, SECRET_ENV[0][1]]
    assert len(found) >= 5
    assert all(len(value) > 10 for value in found)
    return found
