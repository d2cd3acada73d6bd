"""The fake cloud's process: ready, killed, started again; and the calls that it spoils."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import aiohttp
import pytest

from elasticd.provider import AuthFailed, Unavailable
from elasticd_providers.fake import PLUGIN, FakeOptions
from tests.providers.fake_site import FakeSite, fake_site, launch_request
from tests.providers.harness import processes_with, until


async def test_the_site_is_the_same_cloud_after_sigkill(tmp_path: Path) -> None:
    async with fake_site(tmp_path, boot_seconds=7) as site:
        provider = site.provider(tmp_path / "pool")
        launched = await provider.launch(launch_request())
        await site.faults(
            list_lag=3600,
            calls=[{"operation": "create", "effect": "dropped", "times": 2}],
        )
        with pytest.raises(Unavailable):
            await provider.launch(launch_request("node-2"))
        before = await site.truth()
        await site.kill()
        with pytest.raises(Unavailable, match="Cannot connect"):
            await provider.instances()
        await site.start()
        after = await site.truth()
        assert after["machines"][0]["id"] == launched.instance_id
        assert {**after, "now": 0, "machines": 0} == {**before, "now": 0, "machines": 0}
        with pytest.raises(Unavailable):  # the second of the two
            await provider.launch(launch_request("node-2"))
        await provider.launch(launch_request("node-2"))
        await provider.aclose()


async def test_the_site_ends_cleanly_with_sigterm_though_calls_hang(tmp_path: Path) -> None:
    async with fake_site(tmp_path) as site:
        provider = site.provider(tmp_path / "pool")
        await site.fault("list", "hang")
        hung = asyncio.create_task(provider.instances())
        await site.until(lambda truth: truth["calls"]["counts"].get("list"), "the call arrived")
        assert await site.stop() == 0
        with pytest.raises(Unavailable):
            await hung
        await provider.aclose()


async def test_every_call_is_counted_with_what_became_of_it(tmp_path: Path) -> None:
    async with fake_site(tmp_path) as site:
        provider = site.provider(tmp_path / "pool")
        launched = await provider.launch(launch_request())
        await provider.terminate(launched.instance_id)
        await site.fault("list", "overloaded", times=None)
        for _ in range(2):
            with pytest.raises(Unavailable):
                await provider.instances()
        await provider.aclose()
        asked = [(c["target"], c["effect"], c["status"]) for c in await site.asked("terminate")]
        assert asked == [(launched.instance_id, None, 202)]
        lists = [(call["effect"], call["status"]) for call in await site.asked("list")]
        assert lists == [("overloaded", 503)] * 2
        counts = (await site.truth())["calls"]["counts"]
        assert counts == {"find": 1, "create": 1, "terminate": 1, "list": 2}


async def test_a_script_lets_pass_spoils_and_is_used_up(tmp_path: Path) -> None:
    async with fake_site(tmp_path) as site:
        provider = site.provider(tmp_path / "pool")
        await site.fault("list", "server_error", skip=1, times=2)
        outcomes = []
        for _ in range(4):
            try:
                await provider.instances()
                outcomes.append("fine")
            except Unavailable:
                outcomes.append("spoiled")
        await provider.aclose()
        assert outcomes == ["fine", "spoiled", "spoiled", "fine"]


async def test_a_slow_call_is_done_late_and_a_delayed_one_answered_late(tmp_path: Path) -> None:
    async with fake_site(tmp_path) as site:
        provider = site.provider(tmp_path / "pool", timeout="200ms")
        await site.fault("create", "slow", seconds=3600)
        with pytest.raises(Unavailable):
            await provider.launch(launch_request("node-1"))
        assert await site.machines() == []
        await site.fault("create", "delayed", seconds=3600)
        await provider.launch(launch_request("node-2"))  # found by its name
        assert len(await site.machines()) == 1
        await provider.aclose()


async def test_a_control_that_cannot_be_read_is_refused_and_changes_nothing(
    tmp_path: Path,
) -> None:
    async with fake_site(tmp_path) as site, aiohttp.ClientSession() as session:
        await site.faults(list_lag=5)
        for body in ({"list_lg": 1}, {"calls": [{"operation": "create", "effect": "melt"}]}, []):
            async with session.put(f"{site.url}/control/faults", json=body) as answer:
                assert answer.status == 400
        assert (await site.truth())["faults"]["list_lag"] == 5


async def test_the_vendors_api_wants_its_token_and_knows_its_paths(tmp_path: Path) -> None:
    async with fake_site(tmp_path) as site, aiohttp.ClientSession() as session:
        async with session.get(f"{site.url}/v1/machines") as answer:
            assert answer.status == 401
            assert (await answer.json())["error"]["code"] == "bad_token"
        async with session.get(f"{site.url}/v1/nothing") as answer:
            assert answer.status == 404
        async with session.post(f"{site.url}/v1/machines", data=b"{") as answer:
            assert answer.status == 400


@pytest.mark.parametrize(
    ("effect", "told"),
    [
        ("dropped", "the connection ended before the answer came"),
        ("lost", "the connection ended before the answer came"),
        ("hang", r"no answer within 0\.5 s"),
        ("truncated", "200, not the JSON of this API"),
        ("html", "502, not the JSON of this API: '<html> <head>"),
        ("page_lost", "has 1 of 2: pages are lost"),
    ],
)
async def test_a_list_that_breaks_on_the_wire_is_no_list_and_is_asked_for_once(
    tmp_path: Path, effect: str, told: str
) -> None:
    async with fake_site(tmp_path, page_size=1) as site:
        provider = site.provider(tmp_path / "pool", timeout="500ms")
        machines = [await provider.launch(launch_request(f"node-{n}")) for n in range(2)]
        await site.fault("list", effect)
        with pytest.raises(Unavailable, match=told):
            await provider.instances()
        assert await site.calls("list") == 1 + (effect == "page_lost")
        assert list(await provider.instances()) == machines
        await provider.aclose()


async def test_a_wrong_token_is_told_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THE_TOKEN", "wrong")
    assert PLUGIN.check_access is not None
    async with fake_site(tmp_path) as site:
        bad = FakeOptions.model_validate({"url": site.url, "token": {"env": "THE_TOKEN"}})
        with pytest.raises(AuthFailed, match="check the pool's token") as raised:
            await PLUGIN.check_access(bad)
        assert "wrong" not in str(raised.value)
        told = await PLUGIN.check_access(FakeOptions.model_validate({"url": site.url}))
        assert told.endswith("knows us as account-1")


def _runs(marker: str) -> bool:
    return bool(processes_with(marker))


async def _run_machine(site: FakeSite, tmp_path: Path, marker: str) -> str:
    provider = site.provider(tmp_path / "pool")
    script = f"echo up {marker}; sleep 9876 {marker[-1]} & wait\n"
    launched = await provider.launch(launch_request(bootstrap=script))
    await provider.aclose()
    await site.until(
        lambda truth: f"up {marker}" in truth["machines"][0]["printed"], "it runs", limit=10
    )
    return launched.instance_id


async def test_a_machine_may_run_its_bootstrap_until_it_ends(tmp_path: Path) -> None:
    async with fake_site(tmp_path, "--run-bootstrap") as site:
        marker = f"marker-{time.monotonic_ns()}"
        machine_id = await _run_machine(site, tmp_path, marker)
        home = str(tmp_path / "fake-cloud.machines" / machine_id)
        assert _runs(home)
        await site.kill()
        assert _runs(home)
        await site.start()
        assert len(await site.paid()) == 1
        await site.preempt(machine_id)
        await until(lambda: not _runs(home), "nothing of the machine runs")


async def test_a_site_that_ends_takes_its_running_machines_along(tmp_path: Path) -> None:
    async with fake_site(tmp_path, "--run-bootstrap") as site:
        await _run_machine(site, tmp_path, f"marker-{time.monotonic_ns()}")
        assert await site.stop() == 0
        await until(lambda: not _runs(str(tmp_path / "fake-cloud.machines")), "nothing runs")


async def test_without_being_told_so_no_bootstrap_runs(tmp_path: Path) -> None:
    async with fake_site(tmp_path) as site:
        provider = site.provider(tmp_path / "pool")
        await provider.launch(launch_request())
        await provider.aclose()
    assert not (tmp_path / "fake-cloud.machines").exists()
    assert json.loads((tmp_path / "fake-cloud.json").read_text())["cloud"]["machines"]
