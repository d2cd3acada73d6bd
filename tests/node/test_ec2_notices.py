"""What a machine on EC2 hears of its end, from a service that speaks IMDSv2."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import formatdate

import pytest

from elasticd.node.metadata import Heard, Listener, SwitchedOff, Unknown, ec2, listeners
from tests.node.fake_metadata import ACTION, FAULTS, REBALANCE, SCHEDULED, FakeEc2, running

EIGHT_THIRTY = datetime(2026, 10, 1, 8, 30, tzinfo=UTC).timestamp()
GOES = json.dumps({"action": "terminate", "time": "2026-10-01T08:31:30Z"})
HINT = json.dumps({"noticeTime": "2026-10-01T08:20:00Z"})
STATUSES = (400, 429, 500, 503, 302)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ec2, "LIMIT", 0.5)


@pytest.fixture
def imds() -> Iterator[FakeEc2]:
    with running(FakeEc2()) as fake:
        fake.clock = EIGHT_THIRTY
        yield fake


@pytest.fixture
def listener(imds: FakeEc2) -> Listener:
    [listener] = listeners("ec2", imds.url, "n-1")
    return listener


def kinds(heard: Heard) -> list[str]:
    return [notice.kind for notice in heard.notices]


def test_without_any_item_there_is_no_notice_and_that_is_known(listener: Listener) -> None:
    heard = listener.listen()
    assert (heard.notices, heard.complete, heard.trouble) == ((), True, "")
    assert heard.rest == ec2.PERIOD


@pytest.mark.parametrize("action", ["terminate", "stop", "hibernate"])
def test_an_interruption_has_the_seconds_that_the_service_itself_reckons(
    imds: FakeEc2, listener: Listener, action: str
) -> None:
    imds.items[ACTION] = json.dumps({"action": action, "time": "2026-10-01T08:31:30Z"})
    [notice] = listener.listen().notices
    assert notice.kind == "interruption"
    assert notice.seconds_left == pytest.approx(90.0, abs=1.0)


@pytest.mark.parametrize(("clock_off", "left"), [(-86400.0, 120.0), (86400.0, 0.0)])
def test_a_clock_that_is_wrong_never_gives_more_time_than_ec2_does(
    imds: FakeEc2, listener: Listener, clock_off: float, left: float
) -> None:
    imds.clock = EIGHT_THIRTY + clock_off
    imds.items[ACTION] = GOES
    [notice] = listener.listen().notices
    assert notice.seconds_left == pytest.approx(left, abs=1.0)


def test_the_same_notice_is_the_same_again_also_for_another_life_of_the_watcher(
    imds: FakeEc2, listener: Listener
) -> None:
    imds.items = {ACTION: GOES, REBALANCE: HINT}
    first = listener.listen().notices
    imds.clock = EIGHT_THIRTY + 7
    assert listener.listen().notices == first
    [later] = listeners("ec2", imds.url, "n-1")
    assert [n.notice_id for n in later.listen().notices] == [n.notice_id for n in first]
    [other] = listeners("ec2", imds.url, "n-2")
    assert {n.notice_id for n in other.listen().notices}.isdisjoint(n.notice_id for n in first)


def test_another_time_is_another_notice(imds: FakeEc2, listener: Listener) -> None:
    imds.items[ACTION] = GOES
    [first] = listener.listen().notices
    imds.items[ACTION] = GOES.replace("08:31:30", "08:30:40")
    [second] = listener.listen().notices
    assert second.notice_id != first.notice_id


def test_a_hint_has_no_end(imds: FakeEc2, listener: Listener) -> None:
    imds.items[REBALANCE] = HINT
    [notice] = listener.listen().notices
    assert (notice.kind, notice.seconds_left) == ("rebalance", None)


def test_what_is_gone_again_is_withdrawn_once_it_is_surely_gone(
    imds: FakeEc2, listener: Listener
) -> None:
    imds.items[REBALANCE] = HINT
    assert kinds(listener.listen()) == ["rebalance"]
    del imds.items[REBALANCE]
    assert kinds(listener.listen()) == ["rebalance"], "one answer may be a hiccup"
    assert kinds(listener.listen()) == []


def maintenance(begins: float, state: str = "active") -> str:
    when = formatdate(begins, usegmt=True).partition(", ")[2]
    event = {"EventId": "e-1", "Code": "system-reboot", "State": state, "NotBefore": when}
    return json.dumps([event])


def test_maintenance_is_a_notice_only_when_it_is_near(imds: FakeEc2, listener: Listener) -> None:
    imds.items[SCHEDULED] = maintenance(EIGHT_THIRTY + 14 * 86400)
    assert kinds(listener.listen()) == []
    imds.clock = EIGHT_THIRTY + 14 * 86400 - 1800
    [notice] = listener.listen().notices
    assert notice.kind == "maintenance"
    assert notice.seconds_left == pytest.approx(1800, abs=1.0)
    imds.items[SCHEDULED] = maintenance(EIGHT_THIRTY + 14 * 86400, "canceled")
    assert kinds(listener.listen()) == []


def test_a_token_that_has_expired_is_renewed_within_the_same_look(
    imds: FakeEc2, listener: Listener
) -> None:
    imds.token_uses = 4
    listener.listen()
    imds.items[ACTION] = GOES
    heard = listener.listen()
    assert kinds(heard) == ["interruption"]
    assert heard.trouble == ""
    assert imds.count("api/token") == 2


def test_a_service_that_takes_no_token_at_all_is_not_asked_in_a_circle(
    imds: FakeEc2, listener: Listener
) -> None:
    imds.token_uses = 0
    with pytest.raises(Unknown, match="401"):
        listener.listen()
    assert len(imds.asked) == 2


@pytest.mark.parametrize("first", [True, False])
def test_a_service_that_is_switched_off_says_so_once_and_for_all(
    imds: FakeEc2, listener: Listener, first: bool
) -> None:
    if not first:
        listener.listen()
    imds.off = True
    with pytest.raises(SwitchedOff, match="switched off"):
        listener.listen()


@pytest.mark.parametrize("fault", [*FAULTS, *STATUSES])
def test_no_fault_is_a_notice_or_the_end_of_one_and_nothing_is_asked_twice(
    imds: FakeEc2, listener: Listener, fault: str | int
) -> None:
    imds.lasting = fault
    with pytest.raises(Unknown):
        listener.listen()
    assert len(imds.asked) == 1
    imds.lasting = None
    imds.items[ACTION] = GOES
    before = listener.listen().notices
    assert len(before) == 1
    asked = len(imds.asked)
    imds.lasting = fault
    with pytest.raises(Unknown):
        listener.listen()
    assert len(imds.asked) - asked <= 3, "each item once"
    imds.lasting = None
    assert listener.listen().notices == before


@pytest.mark.parametrize("fault", [*FAULTS, *STATUSES])
def test_a_hint_that_cannot_be_asked_for_hides_no_interruption(
    imds: FakeEc2, listener: Listener, fault: str | int
) -> None:
    listener.listen()
    imds.items = {ACTION: GOES, REBALANCE: HINT}
    fine = [None, fault]
    imds.take_fault = lambda: fine.pop(0) if fine else None  # type: ignore[method-assign]
    heard = listener.listen()
    assert kinds(heard) == ["interruption"]
    assert heard.trouble
    assert kinds(listener.listen()) == ["interruption", "rebalance"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (ACTION, ""),
        (ACTION, "null"),
        (ACTION, "[]"),
        (ACTION, '{"action": "terminate"}'),
        (ACTION, '{"action": "noop", "time": "2026-10-01T08:31:30Z"}'),
        (ACTION, '{"action": "terminate", "time": "soon"}'),
        (ACTION, '{"action": "terminate", "time": 1790000000}'),
        (ACTION, '{"action": ["terminate"], "time": "2026-10-01T08:31:30Z"}'),
        (ACTION, '{"action": "terminate", "time": "2026-10-01T08:3'),
        (REBALANCE, '{"noticeTime": null}'),
        (REBALANCE, '"2026-10-01T08:20:00Z"'),
        (SCHEDULED, '{"State": "active"}'),
        (SCHEDULED, '[{"State": "active", "NotBefore": "whenever"}]'),
        (SCHEDULED, "[1]"),
        (SCHEDULED, "[" * 50_000),
    ],
)
def test_what_is_not_understood_is_no_notice_and_hides_no_other(
    imds: FakeEc2, listener: Listener, path: str, body: str
) -> None:
    imds.items = {ACTION: GOES, REBALANCE: HINT, SCHEDULED: "[]", path: body}
    heard = listener.listen()
    expected = {ACTION: "interruption", REBALANCE: "rebalance"}
    assert kinds(heard) == [kind for at, kind in expected.items() if at != path]
    assert heard.trouble
    assert not heard.complete, "the one that was never understood may hold"


def test_no_proxy_stands_between_a_machine_and_its_metadata(
    imds: FakeEc2, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert listener.listen().complete


def test_an_answer_that_trickles_in_ends_at_the_limit(imds: FakeEc2, listener: Listener) -> None:
    imds.faults = ["trickle"]
    began = time.monotonic()
    with pytest.raises(Unknown, match="no answer within"):
        listener.listen()
    assert time.monotonic() - began < 10


def test_nobody_there_at_all_is_not_known(imds: FakeEc2) -> None:
    [listener] = listeners("ec2", "http://127.0.0.1:9", "n-1")
    with pytest.raises(Unknown):
        listener.listen()


@pytest.mark.parametrize(
    "url", ["https://169.254.169.254", "169.254.169.254", "http://h/x", "ftp://h"]
)
def test_a_url_that_cannot_be_asked_is_refused_in_a_sentence(url: str) -> None:
    with pytest.raises(ValueError, match="metadata URL"):
        listeners("ec2", url, "n-1")
