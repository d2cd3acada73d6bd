"""A provider that hangs, throttles or is away: the rest goes on, calls and lines are few."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path

from structlog.testing import capture_logs

from elasticd.core.events import DrainRequested
from elasticd.provider import RateLimited, Unavailable
from tests.runtime.outage_site import Cloud, Site, SpotCloud, down, gaps, hung_provider
from tests.runtime.virtual import virtual


@virtual
async def test_a_provider_that_never_answers_delays_nobody_else(tmp_path: Path) -> None:
    with capture_logs():
        told = await hung_provider(tmp_path)
    assert told["step_wait"]["max"] < 0.1, told
    assert told["round_longest"] < 0.1, told
    assert told["rounds"] >= 250, told
    assert told["lists_of_the_other"]["max"] <= 31.0, told
    assert told["lists_of_the_other"]["count"] >= 19, told
    assert told["seconds_to_three_more_machines"] <= 30.0, told
    assert told["launches_of_the_other"] == 3, told
    assert told["seconds_to_three_fewer_machines"] <= 420.0, told  # its downscale delay
    assert told["hung_ready"] == 2, told  # what is not answered destroys nothing
    assert told["calls_to_the_hung"] <= 60, told
    assert told["problem"] == "", told
    assert {trouble["what"] for trouble in told["trouble"]} == {"instances", "offerings"}, told
    assert "no answer within 30 s" in told["trouble"][0]["message"], told
    assert told["seconds_to_recover"] <= 600.0, told


@virtual
async def test_throttled_lists_are_asked_for_less_often_and_the_last_one_is_kept(
    tmp_path: Path,
) -> None:
    site = Site(tmp_path, {"lab": Cloud("lab")}, replicas=60)
    cloud = site.clouds["lab"]
    now = asyncio.get_running_loop().time
    with capture_logs():
        async with site.living():
            await site.until(lambda: site.ready("lab") == 60)
            await asyncio.sleep(60.0)
            began = now()
            with down(cloud, RateLimited("RequestLimitExceeded"), only="instances"):
                await asyncio.sleep(300.0)
                status = site.status()
            asked = [at - began for at, what in cloud.asked if what == "instances" and at >= began]
            # No node is lost for this reason, and how old the list is can be seen.
            assert [n["phase"] for n in status["nodes"]].count("ready") == 60
            assert status["pools"][0]["listed_age"] >= 270.0
            assert site.loop.health.problem == ""
            assert 3 <= len(asked) <= 10, asked
            assert cloud.calls("terminate") == 0
            await site.until(lambda: site.status()["pools"][0]["listed_age"] < 10.0, 300.0)
            back = now()
            await asyncio.sleep(100.0)
            assert max(gaps(site, "lab", back - 10.0)) <= 31.0  # at the usual pace again


@virtual
async def test_an_outage_of_hours_is_asked_after_every_five_minutes_at_least(
    tmp_path: Path,
) -> None:
    site = Site(tmp_path, {"lab": Cloud("lab")}, replicas=2)
    cloud = site.clouds["lab"]
    with capture_logs():
        async with site.living():
            await site.until(lambda: site.ready("lab") == 2)
            began = asyncio.get_running_loop().time()
            with down(cloud, Unavailable("503")):
                await asyncio.sleep(4 * 3600.0)
    asked = [at for at, what in cloud.asked if what == "instances" and at >= began]
    pauses = [after - before for before, after in pairwise(asked)]
    assert max(pauses) <= 301.0, pauses
    assert 40 <= len(asked) <= 110, len(asked)
    assert len({round(pause, 3) for pause in pauses[-20:]}) > 10  # with jitter


@virtual
async def test_what_answers_first_wakes_the_rest(tmp_path: Path) -> None:
    site = Site(tmp_path, {"lab": SpotCloud("lab")}, replicas=1)
    cloud = site.clouds["lab"]
    with capture_logs():
        async with site.living():
            await site.until(lambda: site.ready("lab") == 1)
            with down(cloud, Unavailable("503")):
                await asyncio.sleep(3600.0)
            began = asyncio.get_running_loop().time()
            await site.until(lambda: site.lists[-1][0] >= began, 301.0)
            await asyncio.sleep(31.0)
            assert site.pools.providers["lab"].health()["failing"] == []


@virtual
async def test_an_outage_fills_no_log_and_its_end_is_one_line_with_its_duration(
    tmp_path: Path,
) -> None:
    site = Site(tmp_path, {"lab": SpotCloud("lab")}, replicas=20)
    cloud = site.clouds["lab"]
    per_minute: list[int] = []
    with capture_logs() as logs:
        async with site.living():
            await site.until(lambda: site.ready("lab") == 20)
            await asyncio.sleep(120.0)
            nodes = [node["id"] for node in site.status()["nodes"]]
            with down(cloud, Unavailable("503 Service Unavailable")):
                cloud.machines.pop(nodes[0])  # it goes with the provider: one more is wanted
                for node_id in nodes[1:6]:  # these are to end, and more are wanted in their place
                    site.emit(DrainRequested(node_id, 1.0, "test"))
                site.hold("lab", 25)
                for _ in range(30):
                    before = len(logs)
                    await asyncio.sleep(60.0)
                    per_minute.append(len(logs) - before)
            began = len(logs)
            await site.until(lambda: site.ready("lab") == 25, 1200.0)
            await asyncio.sleep(120.0)
    assert max(per_minute) < 20, (per_minute, [line["event"] for line in logs])
    assert sum(per_minute[5:]) < 25 * 10, per_minute
    again = [line for line in logs[began:] if line["event"] == "provider_answers_again"]
    [line] = again
    assert 1700 <= float(line["after"].removesuffix(" s")) <= 2200
    assert line["pool"] == "lab"
    away = [line for line in logs if line["event"] == "provider_does_not_answer"]
    assert away[0]["message"] == "503 Service Unavailable"
    assert any(line.get("folded") for line in away)
