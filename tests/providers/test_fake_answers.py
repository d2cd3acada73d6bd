"""Lists, errors, notices and boot logs of the fake vendor, read with suspicion."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from elasticd.provider import (
    AuthFailed,
    BootLog,
    Instance,
    InstanceNotFound,
    InstanceState,
    Market,
    NoticeSource,
    NoticeWithdrawn,
    PreemptionNotice,
    RateLimited,
    Reclaimable,
    Unavailable,
)
from elasticd_providers.fake import FakeProvider
from elasticd_providers.fake.client import Client, Reply
from elasticd_providers.fake.identity import Identity, identity_of
from tests.providers.fake_site import DirectSite, fake_provider, launch_request, offering


@pytest.fixture
def site(tmp_path: Path) -> DirectSite:
    return DirectSite(tmp_path / "pool", page_size=2)


@pytest.fixture
async def provider(site: DirectSite) -> AsyncIterator[FakeProvider]:
    provider = site.provider(notices_every="20ms")
    yield provider
    await provider.aclose()


async def _three(provider: FakeProvider) -> list[Instance]:
    return [await provider.launch(launch_request(f"node-{n}")) for n in range(3)]


async def test_a_list_has_the_machines_of_all_pages(
    site: DirectSite, provider: FakeProvider
) -> None:
    machines = await _three(provider)
    assert list(await provider.instances()) == machines
    assert await site.calls("list") == 2


@pytest.mark.parametrize(
    ("effect", "told"),
    [
        ("page_lost", "has 2 of 3: pages are lost"),
        ("null", "machines is no list but 'None'"),
        ("missing", "machines is no list"),
        ("bad_entry", "an entry is wrong at id"),
        ("html", "502, not the JSON of this API"),
        ("bare_404", "404, not the JSON of this API"),
        ("truncated", "not the JSON of this API"),
        ("text", "not the JSON of this API: 'OK, but please read our notice of maintenance'"),
        ("server_error", "500"),
        ("dropped", "the connection was closed"),
    ],
)
async def test_a_list_that_is_not_whole_is_no_list(
    site: DirectSite, provider: FakeProvider, effect: str, told: str
) -> None:
    machines = await _three(provider)
    await site.fault("list", effect)
    with pytest.raises(Unavailable, match=told) as raised:
        await provider.instances()
    assert "\n" not in str(raised.value)
    assert list(await provider.instances()) == machines


@pytest.mark.parametrize("effect", ["strings", "duplicates"])
async def test_an_odd_list_that_can_be_read_is_read(
    site: DirectSite, provider: FakeProvider, effect: str
) -> None:
    machines = await _three(provider)
    await site.fault("list", effect, times=2)
    assert list(await provider.instances()) == machines


async def test_an_unknown_state_is_unknown_and_a_missing_address_is_none(
    site: DirectSite, provider: FakeProvider
) -> None:
    await provider.launch(launch_request())
    await site.fault("list", "odd_state")
    assert [i.state for i in await provider.instances()] == [InstanceState.UNKNOWN]
    await site.fault("list", "no_address")
    assert [i.address for i in await provider.instances()] == [None]


async def test_states_are_told_in_our_words(site: DirectSite, provider: FakeProvider) -> None:
    await site.settings(boot_seconds=1000, stop_seconds=1000)
    launched = await provider.launch(launch_request())
    assert launched.state is InstanceState.PENDING
    await site.skip(1000)
    assert [i.state for i in await provider.instances()] == [InstanceState.RUNNING]
    await provider.terminate(launched.instance_id)
    assert [i.state for i in await provider.instances()] == [InstanceState.STOPPING]
    await provider.terminate(launched.instance_id)
    await site.skip(1000)
    with pytest.raises(InstanceNotFound):
        await provider.terminate(launched.instance_id)
    assert await provider.instances() == []


async def test_machines_of_our_name_are_shown_with_their_ledger_and_others_are_not(
    site: DirectSite, provider: FakeProvider
) -> None:
    foreign = await site.plant_node("n9", ledger="other")
    for stranger in ({"cluster": "elsewhere"}, {"pool": "another"}):
        await site.plant_node("n8", **stranger)
    await site.plant("somebodys web shop")
    (shown,) = await provider.instances()
    assert (shown.instance_id, shown.node_id, shown.ledger_id) == (foreign["id"], "n9", "other")
    assert shown.offering == offering()


async def test_a_machine_whose_tags_are_late_is_known_by_its_name(
    site: DirectSite, provider: FakeProvider
) -> None:
    await site.faults(tags_lag=3600)
    launched = await provider.launch(launch_request())
    assert list(await provider.instances()) == [launched]
    assert (await site.machines())[0]["tags"] != {}


def test_names_are_exact_whatever_the_parts_contain() -> None:
    identity = Identity("prod/a", "spot pool", "l%2F1", "节点-1")
    assert identity_of(identity.name, {}) == identity
    assert identity_of("x", identity.tags) == identity
    for name in ("", "elasticd/a/b/c", "elasticd/a/b/c/", "other/a/b/c/d"):
        assert identity_of(name, {"elasticd-node": "n"}) is None


@pytest.mark.parametrize("effect", ["dropped", "html", "bare_404", "server_error", "conflict"])
async def test_only_the_vendors_own_word_means_gone(
    site: DirectSite, provider: FakeProvider, effect: str
) -> None:
    launched = await provider.launch(launch_request())
    await site.fault("terminate", effect)
    with pytest.raises(Unavailable):
        await provider.terminate(launched.instance_id)
    assert len(await site.paid()) == 1
    await provider.terminate(launched.instance_id)
    assert await site.paid() == []


async def test_a_late_end_of_one_machine_does_not_touch_the_next_with_its_address(
    site: DirectSite, provider: FakeProvider
) -> None:
    first = await provider.launch(launch_request("node-1"))
    await site.preempt(first.instance_id)
    second = await provider.launch(launch_request("node-2"))
    assert second.address == first.address
    with pytest.raises(InstanceNotFound):
        await provider.terminate(first.instance_id)
    assert [i.instance_id for i in await provider.instances()] == [second.instance_id]


async def test_offers_are_those_of_the_pools_market_and_kinds_sold_out_ones_too(
    site: DirectSite,
) -> None:
    await site.faults(out_of_stock=["zone-b/*"], price_factor=1.2345678)
    provider = site.provider(market=Market.SPOT, accelerators=("simulated",))
    offers = await provider.offerings()
    assert {(o.zone, o.available) for o in offers} == {("zone-a", True), ("zone-b", False)}
    assert {o.market for o in offers} == {Market.SPOT}
    assert {o.price_micros for o in offers} == {493_827, 1_111_111}
    await site.fault("offers", "bad_entry")
    await provider.aclose()
    none = site.provider(accelerators=("H100",))
    assert await none.offerings() == []
    await none.aclose()


@pytest.mark.parametrize("effect", ["null", "missing", "truncated"])
async def test_offers_that_cannot_be_read_are_no_empty_catalog(
    site: DirectSite, provider: FakeProvider, effect: str
) -> None:
    await site.fault("offers", effect)
    with pytest.raises(Unavailable):
        await provider.offerings()


async def test_notices_are_told_once_and_so_are_withdrawals(
    site: DirectSite, provider: FakeProvider
) -> None:
    assert isinstance(provider, NoticeSource)
    assert isinstance(provider, Reclaimable)
    launched = await provider.launch(launch_request())
    await provider.reclaim(launched.instance_id, 3600)
    stream = provider.notices()
    notice = await anext(stream)
    assert isinstance(notice, PreemptionNotice)
    assert notice.instance_id == launched.instance_id
    assert notice.seconds_left == 3600
    await site.withdraw(launched.instance_id)
    await site.skip(1)
    withdrawn = await anext(stream)
    assert withdrawn == NoticeWithdrawn(notice.notice_id, launched.instance_id)
    await provider.reclaim(launched.instance_id, 60)
    again = await anext(stream)
    assert isinstance(again, PreemptionNotice)
    assert again.notice_id != notice.notice_id
    ended = asyncio.ensure_future(anext(stream, None))
    await provider.aclose()
    assert await ended is None


async def test_a_notice_feed_that_breaks_says_so(site: DirectSite, provider: FakeProvider) -> None:
    await site.fault("notices", "html")
    with pytest.raises(Unavailable):
        await anext(provider.notices())


async def test_a_drill_without_notice_takes_the_machine_at_once(
    site: DirectSite, provider: FakeProvider
) -> None:
    launched = await provider.launch(launch_request())
    await provider.reclaim(launched.instance_id, None)
    assert await site.paid() == []


async def test_a_boot_log_outlives_its_machine(site: DirectSite, provider: FakeProvider) -> None:
    assert isinstance(provider, BootLog)
    await site.faults(boot_fails=["*"])
    launched = await provider.launch(launch_request())
    await site.print_line(launched.instance_id, "x" * 10_000 + "the last words")
    await provider.terminate(launched.instance_id)
    log = await provider.boot_log(launched.instance_id)
    assert log.endswith("the last words\n")
    assert len(log) == 4096
    assert await provider.boot_log("m-999999") == ""


def test_a_token_that_cannot_be_read_is_told_when_the_pool_is_made(tmp_path: Path) -> None:
    with pytest.raises(AuthFailed, match="NO_SUCH_TOKEN"):
        fake_provider("http://127.0.0.1:1", tmp_path / "pool", token={"env": "NO_SUCH_TOKEN"})


class _Fixed:
    """A wire that always says the same."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply

    async def send(self, *call: Any) -> Reply:
        return self._reply

    async def aclose(self) -> None:
        return None


@pytest.mark.parametrize(
    ("header", "after"), [("7", 7.0), ("0.5", 0.5), ("soon", None), ("-1", None), ("", None)]
)
@pytest.mark.parametrize(
    "body", [b'{"error": {"code": "too_many_requests"}}', b"<html>slow</html>"]
)
async def test_being_throttled_tells_for_how_long_where_the_vendor_does(
    header: str, after: float | None, body: bytes
) -> None:
    client = Client(_Fixed(Reply(429, body, {"Retry-After": header} if header else {})))
    with pytest.raises(RateLimited) as limited:
        await client.call("GET", "/v1/machines")
    assert limited.value.after == after


async def test_a_retry_after_that_is_a_date_counts_from_now() -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)
    client = Client(_Fixed(Reply(429, b"", {"Retry-After": date})))
    with pytest.raises(RateLimited) as limited:
        await client.call("GET", "/v1/machines")
    assert limited.value.after is not None
    assert 90 < limited.value.after <= 100


@pytest.mark.parametrize("body", [b"[]", b"null", b'"x"', b"[" * 100_000, b"\xff", b""])
async def test_json_that_is_no_object_is_no_answer(body: bytes) -> None:
    with pytest.raises(Unavailable, match="not the JSON of this API"):
        await Client(_Fixed(Reply(200, body, {}))).call("GET", "/v1/machines")


@pytest.mark.parametrize("body", [b'{"error": "no"}', b'{"error": {"code": 7}}', b"{}"])
async def test_an_error_without_a_code_leaves_everything_open(body: bytes) -> None:
    with pytest.raises(Unavailable, match="an error without a code"):
        await Client(_Fixed(Reply(403, body, {}))).call("GET", "/v1/machines")


async def test_a_code_that_is_not_known_leaves_everything_open() -> None:
    body = b'{"error": {"code": "moon_phase"}}'
    with pytest.raises(Unavailable, match="moon_phase"):
        await Client(_Fixed(Reply(403, body, {}))).call("POST", "/v1/machines")


async def test_an_error_within_a_200_is_an_error() -> None:
    body = b'{"error": {"code": "forbidden"}, "machines": []}'
    with pytest.raises(AuthFailed):
        await Client(_Fixed(Reply(200, body, {}))).call("GET", "/v1/machines")
