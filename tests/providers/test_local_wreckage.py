"""A machine's files that are damaged harm nobody but what they are about."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from elasticd.provider import InstanceNotFound, InstanceState, Unavailable
from elasticd_providers.local import process
from elasticd_providers.local.records import MachineFiles
from tests.providers.harness import Pool, end, needs_namespaces

pytestmark = needs_namespaces

DAMAGED = [b"", b"{", b"[]", b'{"instance_id": "x"}']


@pytest.mark.parametrize("damage", DAMAGED)
async def test_the_list_is_an_outage_while_the_record_of_a_living_machine_cannot_be_read(
    pool: Pool, damage: bytes
) -> None:
    provider = pool.provider()
    damaged = await provider.launch(await pool.request("node-1"))
    other = await provider.launch(await pool.request("node-2"))
    record = pool.machine_dir(damaged) / "machine.json"
    before = record.read_bytes()
    record.write_bytes(damage)
    with pytest.raises(Unavailable, match=damaged.instance_id):
        await provider.instances()
    await end(provider, other.instance_id)  # nobody else is kept from being ended
    record.write_bytes(before)
    assert [i.instance_id for i in await provider.instances()] == [damaged.instance_id]


@pytest.mark.parametrize("damage", DAMAGED)
async def test_a_dead_machine_with_a_damaged_record_blocks_nothing_and_never_comes_back(
    pool: Pool, damage: bytes
) -> None:
    provider = pool.provider()
    request = await pool.request("node-1")
    launched = await provider.launch(request)
    files = MachineFiles(pool.machine_dir(launched))
    node_dir = Path(files.record().node_dir)  # type: ignore[union-attr]
    assert await asyncio.to_thread(process.kill, files, 20.0)
    (files.root / "machine.json").write_bytes(damage)
    assert await provider.instances() == []
    repeated = await provider.launch(request)
    assert (repeated.instance_id, repeated.state) == (launched.instance_id, InstanceState.STOPPING)
    assert (repeated.node_id, repeated.ledger_id) == ("node-1", "ledger1")
    other = await provider.launch(await pool.request("node-2"))
    assert [i.instance_id for i in await provider.instances()] == [other.instance_id]
    await asyncio.to_thread(_remove, node_dir)


async def test_a_machine_whose_orders_cannot_be_read_can_still_be_ended(pool: Pool) -> None:
    provider = pool.provider()
    launched = await provider.launch(await pool.request())
    files = MachineFiles(pool.machine_dir(launched))
    (files.root / "control.json").write_bytes(b"")
    await end(provider, launched.instance_id)
    assert await provider.instances() == []


async def test_what_the_host_refuses_leaves_as_an_outage_that_names_the_place(pool: Pool) -> None:
    provider = pool.provider()
    (pool.state_dir / "cloud.json").mkdir()
    with pytest.raises(Unavailable, match=r"cloud\.json"):
        await provider.offerings()
    (pool.state_dir / "cloud.json").rmdir()
    assert await provider.offerings()


@pytest.mark.parametrize("instance_id", ["../gone", "..", ".", "", "a/b", "a\0b"])
async def test_an_id_that_is_a_path_leads_nowhere(pool: Pool, instance_id: str) -> None:
    provider = pool.provider()
    with pytest.raises(InstanceNotFound):
        await provider.terminate(instance_id)
    assert await provider.boot_log(instance_id) == ""
    assert (pool.state_dir / "gone").is_dir()


async def test_a_boot_log_of_any_length_is_shown_by_its_end(pool: Pool) -> None:
    provider = pool.provider()
    script = "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); echo line $i; done; exec sleep 987654\n"
    launched = await provider.launch(await pool.request(bootstrap=script))
    deadline = asyncio.get_running_loop().time() + 20
    while not (shown := await provider.boot_log(launched.instance_id)).endswith("line 3000"):
        assert asyncio.get_running_loop().time() < deadline, shown[-200:]
        await asyncio.sleep(0.02)
    assert len(shown.encode()) <= 8192
    await end(provider, launched.instance_id)
    assert (await provider.boot_log(launched.instance_id)).endswith("line 3000")


def _remove(node_dir: Path) -> None:
    """The one thing that could not be known any more."""
    shutil.rmtree(node_dir, ignore_errors=True)
