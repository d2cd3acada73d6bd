"""The local cloud misbehaves on request: sold out, slow, silent, taking machines back."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from pathlib import Path
from typing import Any

import pytest

from elasticd.provider import (
    InstanceState,
    NoCapacity,
    NoticeSource,
    NoticeWithdrawn,
    PreemptionNotice,
    QuotaExceeded,
    Reclaimable,
    Rejected,
    Unavailable,
)
from elasticd_providers.local.switches import write_switches
from tests.providers.harness import (
    Pool,
    end,
    needs_namespaces,
    offering,
    processes_with,
    until,
    until_listed,
)

pytestmark = needs_namespaces


def _gone(listed: list[object]) -> bool:
    return not listed


async def test_a_sold_out_cloud_has_no_capacity_until_it_has(pool: Pool) -> None:
    provider = pool.provider()
    write_switches(pool.state_dir, out_of_capacity=True)
    assert [o.available for o in await provider.offerings()] == [False]
    with pytest.raises(NoCapacity, match="sold out"):
        await provider.launch(await pool.request())
    write_switches(pool.state_dir)
    assert [o.available for o in await provider.offerings()] == [True]
    await provider.launch(await pool.request())


async def test_a_launch_takes_the_first_offering_whose_zone_has_capacity(pool: Pool) -> None:
    provider = pool.provider(zones=["a", "b"])
    write_switches(pool.state_dir, out_of_capacity=["a"])
    request = await pool.request()
    request = type(request)(
        "node-1", "testing", "ledger1", (offering("a"), offering("b")), request.bootstrap
    )
    launched = await provider.launch(request)
    assert launched.offering == offering("b")


async def test_a_full_host_has_no_capacity(pool: Pool) -> None:
    provider = pool.provider(max_machines=1)
    first = await provider.launch(await pool.request("node-1"))
    assert [o.available for o in await provider.offerings()] == [False]
    with pytest.raises(NoCapacity, match="1 of 1 machines are in use"):
        await provider.launch(await pool.request("node-2"))
    await end(provider, first.instance_id)
    await provider.launch(await pool.request("node-2"))


async def test_an_offering_of_elsewhere_is_rejected(pool: Pool) -> None:
    request = await pool.request()
    foreign = type(request)("n", "testing", "ledger1", (offering(pool="elsewhere"),), "true\n")
    with pytest.raises(Rejected, match="elsewhere"):
        await pool.provider().launch(foreign)


async def test_a_slow_boot_is_pending_until_the_bootstrap_script_runs(pool: Pool) -> None:
    provider = pool.provider(boot_delay="1h")
    slow = await provider.launch(await pool.request("node-1"))
    assert (slow.state, slow.address) == (InstanceState.PENDING, None)
    write_switches(pool.state_dir, boot_delay="0s")
    quick = await provider.launch(await pool.request("node-2"))

    def only_the_quick_one_runs(listed: list[object]) -> bool:
        states = {getattr(i, "instance_id", ""): getattr(i, "state", None) for i in listed}
        return states == {
            slow.instance_id: InstanceState.PENDING,
            quick.instance_id: InstanceState.RUNNING,
        }

    await until_listed(
        provider, only_the_quick_one_runs, "the second machine runs, the first boots"
    )


async def test_launches_fail_with_the_error_that_is_asked_for(pool: Pool) -> None:
    write_switches(pool.state_dir, launch_error="QuotaExceeded")
    with pytest.raises(QuotaExceeded):
        await pool.provider().launch(await pool.request())
    assert pool.leftovers() == []


@pytest.mark.parametrize("written", ['{"out_of_capactiy": true}', '{"boot_delay": 3}', "{"])
async def test_a_wrong_cloud_file_is_an_outage_and_says_why(pool: Pool, written: str) -> None:
    (pool.state_dir / "cloud.json").write_text(written)
    with pytest.raises(Unavailable, match=r"cloud\.json is wrong"):
        await pool.provider().instances()


async def test_a_hanging_cloud_answers_nothing_and_a_cancelled_launch_did_nothing(
    pool: Pool,
) -> None:
    provider = pool.provider()
    write_switches(pool.state_dir, hang=True)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await provider.launch(await pool.request())
    assert pool.leftovers() == []
    listing = asyncio.create_task(provider.instances())
    done, _ = await asyncio.wait([listing], timeout=0.3)
    assert not done
    write_switches(pool.state_dir)
    assert await listing == []


async def test_a_launch_whose_answer_never_came_is_found_by_asking_again(pool: Pool) -> None:
    provider = pool.provider()
    write_switches(pool.state_dir, hang="after")
    launching = asyncio.create_task(provider.launch(await pool.request()))
    await until(lambda: processes_with(str(pool.state_dir)), "the machine comes up")
    launching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await launching
    write_switches(pool.state_dir)
    again = await provider.launch(await pool.request())
    assert [i.instance_id for i in await provider.instances()] == [again.instance_id]


async def test_a_launch_cancelled_at_any_moment_leaves_a_whole_machine_or_none(pool: Pool) -> None:
    provider = pool.provider()
    for number in range(6):
        launching = asyncio.create_task(provider.launch(await pool.request(f"node-{number % 3}")))
        await asyncio.wait([launching], timeout=0.012 * number)
        launching.cancel()
        await asyncio.gather(launching, return_exceptions=True)
    for instance in await provider.instances():
        assert processes_with(str(pool.machine_dir(instance)))
    machines = [await provider.launch(await pool.request(f"node-{n}")) for n in range(3)]
    assert len(await provider.instances()) == len({m.instance_id for m in machines}) == 3


async def test_reclaiming_without_notice_kills_at_once(pool: Pool) -> None:
    provider = pool.provider()
    assert isinstance(provider, Reclaimable)
    instance = await provider.launch(await pool.request())
    await provider.reclaim(instance.instance_id, None)
    await until_listed(provider, _gone, "the machine is gone")
    assert processes_with(str(pool.state_dir)) == []


async def test_a_notice_comes_before_the_kill_and_its_deadline_needs_no_daemon(pool: Pool) -> None:
    provider = pool.provider()
    assert isinstance(provider, NoticeSource)
    instance = await provider.launch(await pool.request())
    began = time.monotonic()
    await provider.reclaim(instance.instance_id, 1.0)
    notice = await anext(aiter(provider.notices()))
    assert isinstance(notice, PreemptionNotice)
    assert notice.instance_id == instance.instance_id
    assert 0.0 < notice.seconds_left <= 1.0
    repeated = await anext(aiter(pool.provider().notices()))  # as after a restart
    assert repeated.notice_id == notice.notice_id
    await provider.aclose()
    # Nobody calls the provider from here on: the machine itself keeps the deadline.
    await until(lambda: not processes_with(str(pool.machine_dir(instance))), "reclaimed")
    assert time.monotonic() - began >= 1.0
    assert await pool.provider().instances() == []


async def test_a_withdrawn_notice_is_told_and_the_machine_stays(pool: Pool) -> None:
    provider = pool.provider()
    instance = await provider.launch(await pool.request())
    notices = aiter(provider.notices())
    await provider.reclaim(instance.instance_id, 3600.0)
    given = await anext(notices)
    await provider.withdraw(instance.instance_id)
    withdrawn = await anext(notices)
    assert withdrawn == NoticeWithdrawn(given.notice_id, instance.instance_id)
    assert len(await provider.instances()) == 1
    await provider.aclose()
    assert [notice async for notice in notices] == []


async def test_a_second_later_reclaim_does_not_extend_the_first(pool: Pool) -> None:
    provider = pool.provider()
    instance = await provider.launch(await pool.request())
    await provider.reclaim(instance.instance_id, 600.0)
    first = await anext(aiter(provider.notices()))
    await provider.reclaim(instance.instance_id, 3600.0)
    second = await anext(aiter(provider.notices()))
    assert second.notice_id == first.notice_id
    assert isinstance(second, PreemptionNotice)
    assert second.seconds_left <= 600.0


async def test_a_hung_machine_stands_still_goes_on_and_can_be_killed_meanwhile(pool: Pool) -> None:
    provider = pool.provider()
    script = "cd $ELASTICD_NODE_DIR; while :; do echo >> ticks; sleep 0.02; done\n"
    instance = await provider.launch(await pool.request(bootstrap=script))
    node_dir = json.loads((pool.machine_dir(instance) / "machine.json").read_bytes())["node_dir"]
    ticks = Path(node_dir) / "ticks"
    await until(ticks.exists, "it ticks")

    def stopped() -> bool:
        states = set()
        for pid in processes_with(f"ELASTICD_NODE_DIR={node_dir}"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if b"init" not in Path(f"/proc/{pid}/cmdline").read_bytes():
                    stat = Path(f"/proc/{pid}/stat").read_text()
                    states.add(stat.rpartition(")")[2].split()[0])
        return "T" in states and states <= {"T", "D"}  # D: waits for a child that is stopped

    await provider.hang(instance.instance_id)
    await until(stopped, "everything but the init is stopped")
    assert [i.state for i in await provider.instances()] == [InstanceState.RUNNING]
    size = ticks.stat().st_size
    await provider.hang(instance.instance_id, False)
    await until(lambda: ticks.stat().st_size > size, "it ticks again")
    await provider.hang(instance.instance_id)
    await until(stopped, "stopped again")
    await end(provider, instance.instance_id)
    assert processes_with(node_dir) == []


@pytest.mark.parametrize(
    ("switches", "told"),
    [({}, "at once"), ({"gpus_late": "3m"}, "180.0"), ({"gpus_never": True}, "inf")],
)
async def test_gpus_come_as_late_as_the_cloud_wants(
    pool: Pool, switches: dict[str, Any], told: str
) -> None:
    write_switches(pool.state_dir, **switches)
    script = (
        'cd "$ELASTICD_NODE_DIR"; echo "${ELASTICD_DECLARED_GPUS_LATE-at once}" > l; mv l late\n'
    )
    provider = pool.provider()
    launched = await provider.launch(await pool.request(bootstrap=f"{script}exec sleep 9999\n"))
    record = json.loads((pool.machine_dir(launched) / "machine.json").read_bytes())
    late = Path(record["node_dir"]) / "late"
    await until(late.exists, "the bootstrap script has looked")
    assert late.read_text().strip() == told


async def test_a_machine_that_an_older_version_wrote_down_is_still_known(pool: Pool) -> None:
    provider = pool.provider()
    launched = await provider.launch(await pool.request())
    path = pool.machine_dir(launched) / "machine.json"
    record = json.loads(path.read_bytes())
    del record["gpus_after"]
    path.write_text(json.dumps(record))
    assert [i.instance_id for i in await provider.instances()] == [launched.instance_id]
