"""One machine for one node, whatever becomes of the answers: the adapter on a real wire, and in
virtual time where waiting is the point.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from elasticd.provider import (
    AuthFailed,
    BillingBlocked,
    InstanceNotFound,
    InstanceState,
    LaunchRequest,
    Market,
    NoCapacity,
    PriceTooHigh,
    QuotaExceeded,
    RateLimited,
    Rejected,
    Unavailable,
)
from elasticd_providers.fake import FakeProvider
from elasticd_providers.fake.client import Reply
from tests.providers.fake_site import (
    DirectSite,
    DirectWire,
    FakeSite,
    fake_site,
    launch_request,
    offering,
)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[FakeSite]:
    async with fake_site(tmp_path) as site:
        yield site


@pytest.fixture
async def provider(site: FakeSite, tmp_path: Path) -> AsyncIterator[FakeProvider]:
    provider = site.provider(tmp_path / "pool", timeout="5s")
    yield provider
    await provider.aclose()


class Virtual(DirectSite):
    """A cloud without a process, for which an adapter waits ten seconds."""

    def __init__(self, tmp_path: Path, visibility: str = "10s", **settings: Any) -> None:
        super().__init__(tmp_path / "pool", **settings)
        self._visibility = visibility

    def provider(self, **more: Any) -> FakeProvider:
        return super().provider(visibility=self._visibility, **more)


async def test_a_machine_has_what_was_asked_for(site: FakeSite, provider: FakeProvider) -> None:
    launched = await provider.launch(launch_request())
    assert (launched.node_id, launched.ledger_id) == ("node-1", "ledger1")
    assert launched.offering == offering()
    assert launched.address
    assert list(await provider.instances()) == [launched]
    (machine,) = await site.paid()
    assert machine["bootstrap"] == launch_request().bootstrap
    assert machine["tags"]["elasticd-node"] == "node-1"


async def test_a_launch_is_repeated_without_a_second_machine(
    site: FakeSite, provider: FakeProvider, tmp_path: Path
) -> None:
    first = await provider.launch(launch_request())
    again = site.provider(tmp_path / "elsewhere")
    assert await again.launch(launch_request()) == first
    await again.aclose()
    assert await site.calls("create") == 1


async def test_a_lost_answer_is_cleared_by_the_machines_name(
    site: FakeSite, provider: FakeProvider
) -> None:
    await site.fault("create", "lost")
    launched = await provider.launch(launch_request())
    assert [m["id"] for m in await site.paid()] == [launched.instance_id]
    assert await site.calls("create") == 1


@pytest.mark.parametrize("effect", ["truncated", "text", "html_after", "null", "bad_entry"])
async def test_a_garbled_answer_is_cleared_by_the_machines_name(
    tmp_path: Path, effect: str
) -> None:
    virtual = Virtual(tmp_path)
    await virtual.fault("create", effect)
    launched = await virtual.provider().launch(launch_request())
    assert [m.id for m in virtual.cloud.paid()] == [launched.instance_id]


async def test_a_creation_that_never_answers_is_cleared_by_the_machines_name(
    site: FakeSite, tmp_path: Path
) -> None:
    provider = site.provider(tmp_path / "pool", timeout="300ms")
    await site.fault("create", "hang_after")
    launched = await provider.launch(launch_request())
    await provider.aclose()
    assert [m["id"] for m in await site.paid()] == [launched.instance_id]


async def test_a_launch_cut_down_in_the_middle_and_repeated_makes_one_machine(
    site: FakeSite, provider: FakeProvider, tmp_path: Path
) -> None:
    await site.fault("create", "hang_after")
    under_way = asyncio.create_task(provider.launch(launch_request()))
    await site.until(lambda truth: truth["machines"], "the machine is made")
    under_way.cancel()
    with pytest.raises(asyncio.CancelledError):
        await under_way
    next_life = site.provider(tmp_path / "pool")
    launched = await next_life.launch(launch_request())
    await next_life.aclose()
    assert [m["id"] for m in await site.machines()] == [launched.instance_id]
    assert list(await provider.instances()) == [launched]


async def test_a_cancelled_call_leaves_the_adapter_usable(
    site: FakeSite, provider: FakeProvider
) -> None:
    await site.fault("list", "hang")
    under_way = asyncio.create_task(provider.instances())
    await site.until(lambda truth: truth["calls"]["counts"].get("list"), "the call has arrived")
    under_way.cancel()
    with pytest.raises(asyncio.CancelledError):
        await under_way
    assert await provider.instances() == []


async def test_nothing_was_made_and_the_launch_says_that_it_does_not_know(
    site: FakeSite, provider: FakeProvider
) -> None:
    await site.fault("create", "dropped")
    with pytest.raises(Unavailable, match="whether a machine was made is not known"):
        await provider.launch(launch_request())
    await provider.launch(launch_request())
    assert len(await site.machines()) == 1


async def test_the_oldest_of_two_machines_is_kept_and_the_other_ended(tmp_path: Path) -> None:
    virtual = Virtual(tmp_path)
    await virtual.fault("create", "twice")
    provider = virtual.provider()
    await provider.launch(launch_request())
    assert len(virtual.cloud.paid()) == 2
    shown = await provider.instances()
    assert [(i.instance_id, i.node_id, i.ledger_id) for i in shown] == [
        ("m-000001", "node-1", "ledger1"),
        ("m-000002", None, "ledger1"),
    ]
    again = await provider.launch(launch_request())
    assert again.instance_id == "m-000001"
    assert [m.id for m in virtual.cloud.paid()] == ["m-000001"]


@pytest.mark.parametrize("effect", ["late", "accepted"])
async def test_a_machine_that_comes_late_is_waited_for_also_by_the_next_controller(
    tmp_path: Path, effect: str
) -> None:
    virtual = Virtual(tmp_path, visibility="60s")
    await virtual.fault("create", effect, seconds=30)
    with pytest.raises(Unavailable):
        await virtual.provider().launch(launch_request())
    virtual.now += 29
    with pytest.raises(Unavailable, match=r"asked for 29\.0 s ago \(not clearly answered\)"):
        await virtual.provider().launch(launch_request())
    virtual.now += 1
    launched = await virtual.provider().launch(launch_request())
    assert [m.id for m in virtual.cloud.machines()] == [launched.instance_id]
    assert await virtual.calls("create") == 1


async def test_an_unclear_creation_is_repeated_once_the_cloud_had_its_time(tmp_path: Path) -> None:
    virtual = Virtual(tmp_path)
    await virtual.fault("create", "dropped")
    with pytest.raises(Unavailable):
        await virtual.provider().launch(launch_request())
    virtual.now += 9.9
    with pytest.raises(Unavailable, match="may still appear"):
        await virtual.provider().launch(launch_request())
    assert await virtual.calls("create") == 1
    virtual.now += 0.1
    await virtual.provider().launch(launch_request())
    assert len(virtual.cloud.paid()) == 1


async def test_a_search_that_lags_makes_no_second_machine(tmp_path: Path) -> None:
    virtual = Virtual(tmp_path)
    lost = [{"operation": "create", "effect": "lost"}]
    await virtual.faults(lookup_lag=8, calls=lost)
    for _ in range(8):
        with pytest.raises(Unavailable):
            await virtual.provider().launch(launch_request())
        virtual.now += 1
    await virtual.provider().launch(launch_request())
    assert len(virtual.cloud.machines()) == 1


async def test_a_clear_refusal_is_not_waited_for(tmp_path: Path) -> None:
    virtual = Virtual(tmp_path)
    await virtual.fault("create", "throttled", retry_after=3)
    with pytest.raises(RateLimited) as limited:
        await virtual.provider().launch(launch_request())
    assert limited.value.after == 3
    await virtual.provider().launch(launch_request())
    assert len(virtual.cloud.paid()) == 1


@pytest.mark.parametrize("effect", ["unauthorized", "no_balance", "invalid", "out_of_stock"])
async def test_a_search_that_is_refused_never_ends_a_launch_that_may_have_made_a_machine(
    tmp_path: Path, effect: str
) -> None:
    virtual = Virtual(tmp_path)
    calls = [
        {"operation": "create", "effect": "lost"},
        {"operation": "find", "effect": effect, "skip": 1, "times": 2},
    ]
    await virtual.faults(calls=calls)
    provider = virtual.provider()
    for _ in range(2):
        with pytest.raises(Unavailable):
            await provider.launch(launch_request())
    launched = await provider.launch(launch_request())
    assert [m.id for m in virtual.cloud.machines()] == [launched.instance_id]


async def test_a_machine_that_has_ended_is_shown_and_not_bought_again(tmp_path: Path) -> None:
    virtual = Virtual(tmp_path, remembered=60)
    first = await virtual.provider().launch(launch_request())
    virtual.cloud.reclaim(first.instance_id, None)
    again = await virtual.provider().launch(launch_request())
    assert (again.instance_id, again.state) == (first.instance_id, InstanceState.STOPPING)
    assert await virtual.provider().instances() == []
    virtual.now += 61  # now the vendor has forgotten it
    with pytest.raises(InstanceNotFound, match="its machine m-000001 is no more"):
        await virtual.provider().launch(launch_request())
    assert await virtual.calls("create") == 1


async def test_a_machine_that_was_given_and_is_not_found_yet_is_not_bought_again(
    tmp_path: Path,
) -> None:
    virtual = Virtual(tmp_path)
    await virtual.faults(lookup_lag=8, list_lag=8)
    first = await virtual.provider().launch(launch_request())
    with pytest.raises(Unavailable, match="may still appear"):
        await virtual.provider().launch(launch_request())
    virtual.now += 8
    assert (await virtual.provider().launch(launch_request())).instance_id == first.instance_id
    assert await virtual.calls("create") == 1


async def test_notes_of_machines_given_long_ago_are_dropped(tmp_path: Path) -> None:
    virtual = Virtual(tmp_path)
    for day in range(3):
        await virtual.provider().launch(launch_request(f"node-{day}"))
        virtual.now += 86_400
    assert len(list((tmp_path / "pool" / "attempts").iterdir())) == 2


@pytest.mark.parametrize(
    ("effect", "error"),
    [
        ("out_of_stock", NoCapacity),
        ("quota", QuotaExceeded),
        ("price", PriceTooHigh),
        ("throttled", RateLimited),
        ("unauthorized", AuthFailed),
        ("forbidden", AuthFailed),
        ("no_balance", BillingBlocked),
        ("invalid", Rejected),
        ("conflict", Unavailable),
        ("not_found", Unavailable),
        ("server_error", Unavailable),
        ("overloaded", Unavailable),
        ("html", Unavailable),
        ("bare_404", Unavailable),
    ],
)
async def test_every_refusal_has_its_class_and_says_what_the_vendor_said(
    tmp_path: Path, effect: str, error: type[Exception]
) -> None:
    virtual = Virtual(tmp_path)
    await virtual.fault("create", effect)
    with pytest.raises(error, match=r"POST /v1/machines: \d{3}") as raised:
        await virtual.provider().launch(launch_request())
    assert type(raised.value) is error
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 500


async def test_the_next_offering_is_tried_in_the_same_call(tmp_path: Path) -> None:
    virtual = Virtual(tmp_path)
    await virtual.faults(out_of_stock=("zone-a/*",))
    request = launch_request("node-1", offering("zone-a"), offering("zone-b"))
    launched = await virtual.provider().launch(request)
    assert launched.offering == offering("zone-b")
    assert await virtual.calls("create") == 2


async def test_no_capacity_anywhere_is_said_once_with_every_reason(tmp_path: Path) -> None:
    virtual = Virtual(tmp_path)
    await virtual.faults(out_of_stock=("*",))
    request = launch_request("node-1", offering("zone-a"), offering("zone-b"))
    with pytest.raises(NoCapacity, match=r"zone-a.*; .*zone-b"):
        await virtual.provider().launch(request)
    assert virtual.cloud.machines() == []


async def test_a_quota_of_one_family_leaves_the_next_offering_to_be_tried(tmp_path: Path) -> None:
    virtual = Virtual(tmp_path)
    await virtual.fault("create", "quota")
    request = launch_request("n", offering("zone-a"), offering("zone-b", market=Market.ON_DEMAND))
    launched = await virtual.provider().launch(request)
    assert launched.offering == offering("zone-b", market=Market.ON_DEMAND)


async def test_an_unclear_answer_is_never_followed_by_another_offering(tmp_path: Path) -> None:
    virtual = Virtual(tmp_path)
    await virtual.fault("create", "server_error")
    request = launch_request("node-1", offering("zone-a"), offering("zone-b"))
    with pytest.raises(Unavailable):
        await virtual.provider().launch(request)
    assert await virtual.calls("create") == 1


async def test_a_price_above_the_offerings_is_not_paid(tmp_path: Path) -> None:
    virtual = Virtual(tmp_path)
    await virtual.faults(price_factor=1.01)
    with pytest.raises(PriceTooHigh):
        await virtual.provider().launch(launch_request())
    assert virtual.cloud.machines() == []


async def test_an_empty_success_with_a_zones_error_is_that_error(tmp_path: Path) -> None:
    virtual = Virtual(tmp_path)
    await virtual.fault("create", "short_errors")
    request = launch_request("node-1", offering("zone-a"), offering("zone-b"))
    launched = await virtual.provider().launch(request)
    assert launched.offering == offering("zone-b")


async def test_an_empty_success_is_no_capacity_once_no_machine_has_appeared(tmp_path: Path) -> None:
    virtual = Virtual(tmp_path)
    await virtual.fault("create", "short")
    with pytest.raises(Unavailable, match="with no machine and no reason"):
        await virtual.provider().launch(launch_request())
    virtual.now += 10
    with pytest.raises(NoCapacity, match="none appeared"):
        await virtual.provider().launch(launch_request())
    assert await virtual.calls("create") == 1
    await virtual.provider().launch(launch_request("node-2"))


async def test_an_empty_success_that_made_a_machine_is_that_machine(tmp_path: Path) -> None:
    virtual = Virtual(tmp_path)
    await virtual.fault("create", "unlisted")
    launched = await virtual.provider().launch(launch_request())
    assert [m.id for m in virtual.cloud.machines()] == [launched.instance_id]


async def test_with_client_tokens_too_an_empty_success_is_open_until_a_machine_could_be_seen(
    tmp_path: Path,
) -> None:
    virtual = Virtual(tmp_path, tokens=True)
    unlisted = [{"operation": "create", "effect": "unlisted"}]
    await virtual.faults(lookup_lag=2.0, calls=unlisted)
    provider = virtual.provider(client_tokens=True)
    for _ in range(2):
        with pytest.raises(Unavailable):
            await provider.launch(launch_request())
    virtual.now += 2.5
    launched = await provider.launch(launch_request())
    assert [m.id for m in virtual.cloud.machines()] == [launched.instance_id]


async def test_with_client_tokens_a_lost_creation_is_repeated_at_once(tmp_path: Path) -> None:
    virtual = Virtual(tmp_path, tokens=True)
    lost = [{"operation": "create", "effect": "lost"}]
    await virtual.faults(lookup_lag=60, calls=lost)
    provider = virtual.provider(client_tokens=True)
    with pytest.raises(Unavailable):
        await provider.launch(launch_request())
    launched = await provider.launch(launch_request())
    assert await virtual.calls("create") == 2
    assert [m.id for m in virtual.cloud.machines()] == [launched.instance_id]


async def test_a_token_that_another_offering_used_up_is_not_a_refusal(tmp_path: Path) -> None:
    virtual = Virtual(tmp_path, tokens=True)
    lost = [{"operation": "create", "effect": "lost", "skip": 1}]
    sold_out = {"out_of_stock": ["zone-a/*"], "lookup_lag": 5, "calls": lost}
    await virtual.faults(**sold_out)
    provider = virtual.provider(client_tokens=True)
    request = launch_request("node-1", offering("zone-a"), offering("zone-b"))
    with pytest.raises(Unavailable):
        await provider.launch(request)
    await virtual.faults(lookup_lag=5)
    with pytest.raises(Unavailable, match="token"):
        await provider.launch(request)
    virtual.now += 5
    assert (await provider.launch(request)).offering == offering("zone-b")
    assert len(virtual.cloud.machines()) == 1


async def test_a_request_without_an_offering_of_the_pool_is_rejected(tmp_path: Path) -> None:
    request = launch_request()
    foreign = LaunchRequest("n", "testing", "ledger1", (), request.bootstrap)
    with pytest.raises(Rejected, match="no offering of it"):
        await Virtual(tmp_path).provider().launch(foreign)


async def test_an_unreadable_note_of_an_attempt_is_no_leave_to_buy_again(tmp_path: Path) -> None:
    virtual = Virtual(tmp_path)
    await virtual.fault("create", "dropped")
    with pytest.raises(Unavailable):
        await virtual.provider().launch(launch_request())
    (note,) = (tmp_path / "pool" / "attempts").iterdir()
    note.write_text("{", encoding="utf-8")
    with pytest.raises(Unavailable, match="tells whether a machine was asked for"):
        await virtual.provider().launch(launch_request())
    assert await virtual.calls("create") == 1


async def test_a_machine_of_just_now_that_is_not_found_is_not_gone(tmp_path: Path) -> None:
    virtual = Virtual(tmp_path)
    provider = virtual.provider()
    await virtual.faults(unknown_lag=9)
    launched = await provider.launch(launch_request())
    with pytest.raises(Unavailable, match="may not be visible yet"):
        await provider.terminate(launched.instance_id)
    virtual.now += 9
    await provider.terminate(launched.instance_id)
    virtual.now += 1
    with pytest.raises(InstanceNotFound):
        await provider.terminate(launched.instance_id)
    assert virtual.cloud.paid() == []


async def test_launches_at_once_for_one_node_make_one_machine(tmp_path: Path) -> None:
    virtual = Virtual(tmp_path)
    provider = virtual.provider()
    launched = await asyncio.gather(*(provider.launch(launch_request()) for _ in range(5)))
    assert {instance.instance_id for instance in launched} == {"m-000001"}
    assert len(virtual.cloud.machines()) == 1


async def test_a_closed_provider_asks_nothing(tmp_path: Path) -> None:
    virtual = Virtual(tmp_path)
    provider = virtual.provider()
    await provider.aclose()
    with pytest.raises(Unavailable, match="this provider is closed"):
        await provider.launch(launch_request())
    assert virtual.desk.log.counts == {}


class SlowToCreate(DirectWire):
    """Creations take nine seconds until they are carried out."""

    def __init__(self, virtual: Virtual) -> None:
        super().__init__(virtual.desk)
        self._virtual = virtual

    async def send(
        self, method: str, path: str, query: Mapping[str, str], body: Mapping[str, Any] | None
    ) -> Reply:
        if method == "POST":
            self._virtual.now += 9.0
        return await super().send(method, path, query, body)


async def test_how_long_a_machine_may_still_appear_counts_from_the_end_of_an_unclear_call(
    tmp_path: Path,
) -> None:
    virtual = Virtual(tmp_path)
    await virtual.faults(lookup_lag=8, calls=[{"operation": "create", "effect": "late"}])
    provider = virtual.provider(wire=SlowToCreate(virtual))
    with pytest.raises(Unavailable):
        await provider.launch(launch_request())
    virtual.now += 2.0  # eleven seconds after the asking, two after the machine was made
    with pytest.raises(Unavailable, match="may still appear"):
        await provider.launch(launch_request())
    virtual.now += 7.0
    await provider.launch(launch_request())
    assert len(await virtual.machines()) == 1
