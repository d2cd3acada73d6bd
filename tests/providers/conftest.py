"""A pool of local machines, and the proof after each test that nothing of it survives."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.providers.harness import Pool, end, processes_with, until


@pytest.fixture
async def pool(tmp_path: Path) -> AsyncIterator[Pool]:
    pool = Pool(tmp_path / "pool")
    yield pool
    (pool.state_dir / "cloud.json").unlink(missing_ok=True)
    provider = pool.provider()
    for instance in await provider.instances():
        await end(provider, instance.instance_id)
    assert pool.leftovers() == []
    await until(lambda: not processes_with(str(pool.state_dir)), "no process of the pool is left")
