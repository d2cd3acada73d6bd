"""The fake cloud by itself, in virtual time: what it rents out, and how the world goes wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from elasticd_providers.fake.catalog import Offer, Settings
from elasticd_providers.fake.cloud import Cloud, Order, Refusal
from elasticd_providers.fake.faults import Faults
from elasticd_providers.fake.machines import Machine

ORDER = Order("n1", "zone-a", "g1.small")


class Day:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def day() -> Day:
    return Day()


def _cloud(day: Day, faults: dict[str, Any] | None = None, **settings: Any) -> Cloud:
    return Cloud(day, Settings(**settings), Faults.model_validate(faults or {}))


def _listed(cloud: Cloud) -> list[tuple[str, str]]:
    return [(sight.machine.id, sight.state) for sight in cloud.listing()]


def _refused(cloud: Cloud, order: Order = ORDER) -> str:
    with pytest.raises(Refusal) as refused:
        cloud.create(order)
    return refused.value.code


def test_the_same_name_twice_makes_two_machines(day: Day) -> None:
    cloud = _cloud(day)
    assert cloud.create(ORDER).id != cloud.create(ORDER).id
    assert len(cloud.paid()) == 2


def test_with_tokens_a_repetition_makes_nothing_new_and_another_request_is_a_conflict(
    day: Day,
) -> None:
    cloud = _cloud(day, tokens=True)
    order = replace(ORDER, token="t")
    assert cloud.create(order) is cloud.create(order)
    assert _refused(cloud, replace(order, zone="zone-b")) == "token_conflict"
    assert len(cloud.paid()) == 1


def test_a_machine_boots_runs_stops_and_ends_in_its_time(day: Day) -> None:
    cloud = _cloud(day, boot_seconds=10, stop_seconds=5)
    machine = cloud.create(ORDER)
    assert machine.state(day.now) == "provisioning"
    day.now += 10
    assert machine.state(day.now) == "active"
    assert cloud.terminate(machine.id) == "stopping"
    day.now += 4.9
    assert cloud.terminate(machine.id) == "stopping"
    day.now += 0.1
    assert not cloud.paid()
    assert machine.seconds_paid(day.now + 100) == 15
    with pytest.raises(Refusal, match="there is no machine") as gone:
        cloud.terminate(machine.id)
    assert gone.value.code == "machine_not_found"


def test_lists_lag_behind_creation_and_end_while_the_exact_search_does_not(day: Day) -> None:
    cloud = _cloud(day, {"list_lag": 20, "ended_lag": 30, "tags_lag": 25})
    machine = cloud.create(replace(ORDER, tags={"a": "b"}))
    assert _listed(cloud) == []
    assert [s.machine.id for s in cloud.find("n1")] == [machine.id]
    day.now += 20
    assert cloud.listing()[0].tags == {}
    day.now += 5
    assert cloud.listing()[0].tags == {"a": "b"}
    cloud.terminate(machine.id)
    assert _listed(cloud) == [(machine.id, "active")]
    assert [s.state for s in cloud.find("n1")] == ["ended"]
    day.now += 30
    assert _listed(cloud) == []


def test_the_exact_search_lags_by_a_knob_of_its_own(day: Day) -> None:
    cloud = _cloud(day, {"lookup_lag": 5})
    machine = cloud.create(ORDER)
    assert cloud.find("n1") == []
    assert _listed(cloud) == [(machine.id, "active")]
    day.now += 5
    assert len(cloud.find("n1")) == 1
    assert cloud.find("n") == cloud.find("N1") == []


def test_ended_machines_are_found_for_a_while(day: Day) -> None:
    cloud = _cloud(day, remembered=60)
    machine = cloud.create(ORDER)
    cloud.terminate(machine.id)
    day.now += 60
    assert [s.state for s in cloud.find("n1")] == ["ended"]
    assert "booting" in cloud.boot_log(machine.id)
    day.now += 1
    assert cloud.find("n1") == []
    with pytest.raises(Refusal):
        cloud.boot_log(machine.id)


def test_a_late_machine_costs_nothing_and_is_nowhere_until_it_comes(day: Day) -> None:
    cloud = _cloud(day, quota=1)
    machine = cloud.create(ORDER, delay=60)
    assert cloud.paid() == []
    assert _listed(cloud) == []
    assert cloud.find("n1") == []
    assert _refused(cloud) == "quota_exceeded"
    day.now += 60
    assert cloud.paid() == [machine]


@pytest.mark.parametrize(
    ("faults", "settings", "order", "code"),
    [
        ({"out_of_stock": ["zone-a/*"]}, {}, ORDER, "out_of_stock"),
        ({"out_of_stock": ["*/g1.small/spot"]}, {}, ORDER, "out_of_stock"),
        ({}, {"quota": 0}, ORDER, "quota_exceeded"),
        ({"price_factor": 1.5}, {}, replace(ORDER, max_price=500_000), "price_above_limit"),
        ({}, {}, replace(ORDER, zone="mars"), "invalid_request"),
    ],
)
def test_a_creation_is_refused_in_the_vendors_words(
    day: Day, faults: dict[str, Any], settings: dict[str, Any], order: Order, code: str
) -> None:
    cloud = _cloud(day, faults, **settings)
    assert _refused(cloud, order) == code
    assert cloud.machines() == []


def test_stock_is_used_up_by_living_machines(day: Day) -> None:
    cloud = _cloud(day, offers=(Offer(zone="zone-a", machine_type="g1.small", stock=1),))
    machine = cloud.create(ORDER)
    assert [s.left for s in cloud.stock()] == [0]
    assert _refused(cloud) == "out_of_stock"
    cloud.terminate(machine.id)
    assert [s.left for s in cloud.stock()] == [1]
    cloud.create(ORDER)


def test_a_new_machine_gets_the_address_of_an_ended_one(day: Day) -> None:
    cloud = _cloud(day)
    first, second = cloud.create(ORDER), cloud.create(ORDER)
    assert first.address != second.address
    cloud.terminate(first.id)
    assert cloud.create(ORDER).address == first.address


def test_an_ignored_end_is_answered_well_and_does_nothing_for_a_while(day: Day) -> None:
    cloud = _cloud(day, {"terminate_ignored": 30})
    machine = cloud.create(ORDER)
    assert cloud.terminate(machine.id) == "active"
    day.now += 29
    assert cloud.terminate(machine.id) == "active"
    day.now += 1
    assert cloud.paid() == [machine]
    assert cloud.terminate(machine.id) == "ended"
    assert cloud.paid() == []


def test_a_fresh_machine_may_be_unknown_by_its_id(day: Day) -> None:
    cloud = _cloud(day, {"unknown_lag": 20})
    machine = cloud.create(ORDER)
    with pytest.raises(Refusal):
        cloud.terminate(machine.id)
    assert cloud.paid() == [machine]
    day.now += 20
    cloud.terminate(machine.id)
    assert cloud.paid() == []


def test_a_failed_boot_is_never_active_and_says_so(day: Day) -> None:
    cloud = _cloud(day, {"boot_fails": ["*/spot"], "never_active": ["*/on_demand"]})
    failed = cloud.create(ORDER)
    mute = cloud.create(replace(ORDER, market="on_demand"))
    day.now += 10_000
    assert {m.state(day.now) for m in (failed, mute)} == {"provisioning"}
    assert "boot failed" in cloud.boot_log(failed.id)
    assert "boot" not in cloud.boot_log(mute.id).replace("booting", "")


def test_spot_machines_are_taken_by_themselves_with_their_notice(day: Day) -> None:
    cloud = _cloud(day, {"spot_lifetime": 100, "spot_notice": 30})
    spot = cloud.create(ORDER)
    lasting = cloud.create(replace(ORDER, market="on_demand"))
    day.now += 69
    assert cloud.notices() == []
    day.now += 1
    assert cloud.notices() == [spot]
    day.now += 30
    assert cloud.paid() == [lasting]
    assert cloud.notices() == []


def test_a_notice_can_be_given_withdrawn_and_given_again(day: Day) -> None:
    cloud = _cloud(day)
    machine = cloud.create(ORDER)

    def told() -> tuple[str, float | None]:
        (noticed,) = cloud.notices()
        return noticed.notice_id, noticed.reclaim_at

    cloud.reclaim(machine.id, 30)
    first, _ = told()
    cloud.withdraw(machine.id)
    assert told() == (first, None)
    day.now += 60
    assert cloud.paid() == [machine]
    cloud.reclaim(machine.id, 30)
    assert told() == (f"notice-{machine.id}-{day.now:.3f}", day.now + 30)
    cloud.reclaim(machine.id, None)
    assert cloud.paid() == []


def test_the_cloud_is_the_same_after_a_restart(day: Day) -> None:
    cloud = _cloud(day, {"list_lag": 5, "spot_lifetime": 50, "spot_notice": 5}, quota=7)
    cloud.create(ORDER)
    cloud.skip(4)
    cloud.print_line("m-000001", "hello")
    document = json.loads(json.dumps(cloud.to_json()))
    again = Cloud.from_json(day, document)
    assert again.to_json() == cloud.to_json()
    assert again.now == cloud.now
    assert again.create(ORDER).id == "m-000002"


def test_machines_round_trip_through_json(day: Day) -> None:
    machine = _cloud(day).create(ORDER)
    assert Machine.from_json(json.loads(json.dumps(machine.to_json()))) == machine
