"""What a machine on Google Cloud hears of its end, from a server whose answers hang."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from elasticd.node.metadata import Heard, Listener, Unknown, gcp, listeners
from tests.node.fake_metadata import FAULTS, FakeGcp, running
from tests.node.waiting import eventually

STATUSES = (403, 404, 429, 500, 503)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gcp, "LIMIT", 0.5)


@pytest.fixture
def server() -> Iterator[FakeGcp]:
    with running(FakeGcp()) as fake:
        yield fake


@pytest.fixture
def preempted(server: FakeGcp) -> Listener:
    return listeners("gcp", server.url, "n-1")[0]


@pytest.fixture
def maintenance(server: FakeGcp) -> Listener:
    return listeners("gcp", server.url, "n-1")[1]


def changed_meanwhile(server: FakeGcp, listener: Listener, name: str, value: str) -> Heard:
    """What is heard when the value changes while the question hangs."""
    heard: list[Heard] = []
    thread = threading.Thread(target=lambda: heard.append(listener.listen()))
    hung = len(server.hung)
    thread.start()
    eventually(lambda: len(server.hung) > hung)
    server.set(name, value)
    thread.join(20)
    return heard[0]


def test_the_first_answer_comes_at_once(preempted: Listener, maintenance: Listener) -> None:
    for listener in (preempted, maintenance):
        heard = listener.listen()
        assert (heard.notices, heard.complete, heard.trouble) == ((), True, "")


def test_a_preemption_is_heard_while_the_question_hangs(
    server: FakeGcp, preempted: Listener
) -> None:
    preempted.listen()
    [notice] = changed_meanwhile(server, preempted, "preempted", "TRUE").notices
    assert notice.kind == "interruption"
    assert notice.seconds_left == pytest.approx(30.0, abs=1.0)


def test_maintenance_that_ends_the_machine_is_a_notice_and_may_be_withdrawn(
    server: FakeGcp, maintenance: Listener
) -> None:
    maintenance.listen()
    ends = "TERMINATE_ON_HOST_MAINTENANCE"
    [notice] = changed_meanwhile(server, maintenance, "maintenance-event", ends).notices
    assert notice.kind == "maintenance"
    assert changed_meanwhile(server, maintenance, "maintenance-event", "NONE").notices == ()


def test_a_machine_that_is_only_moved_has_no_notice(server: FakeGcp, maintenance: Listener) -> None:
    server.set("maintenance-event", "MIGRATE_ON_HOST_MAINTENANCE")
    assert maintenance.listen().notices == ()


def test_the_same_notice_is_the_same_again_also_for_another_life_of_the_watcher(
    server: FakeGcp, preempted: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gcp, "HANG", 0.0)
    server.set("preempted", "TRUE")
    first = preempted.listen().notices
    assert preempted.listen().notices == first
    [again] = listeners("gcp", server.url, "n-1")[0].listen().notices
    assert [again.notice_id] == [n.notice_id for n in first]


@pytest.mark.parametrize(("waits", "etags"), [(False, True), (True, False)])
def test_a_server_that_makes_nobody_wait_is_asked_every_few_seconds(
    server: FakeGcp, preempted: Listener, waits: bool, etags: bool
) -> None:
    server.waits, server.etags = waits, etags
    assert preempted.listen().rest >= gcp.SPACING
    for _ in range(3):
        assert preempted.listen().rest >= gcp.PERIOD
    assert len(server.asked) == 4


def test_values_that_change_all_the_time_are_not_asked_for_in_a_circle(
    server: FakeGcp, preempted: Listener
) -> None:
    for value in ("TRUE", "FALSE", "TRUE"):
        server.set("preempted", value)
        assert preempted.listen().rest >= gcp.SPACING


@pytest.mark.parametrize("fault", [*FAULTS, *STATUSES])
def test_no_fault_is_a_notice_or_the_end_of_one_and_nothing_is_asked_twice(
    server: FakeGcp, preempted: Listener, fault: str | int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gcp, "HANG", 0.0)
    monkeypatch.setattr(gcp, "LATE", 0.5)
    server.lasting = fault
    with pytest.raises(Unknown):
        preempted.listen()
    assert len(server.asked) == 1
    server.lasting = None
    server.set("preempted", "TRUE")
    before = preempted.listen().notices
    assert len(before) == 1
    server.faults = [fault]
    with pytest.raises(Unknown):
        preempted.listen()
    assert preempted.listen().notices == before
    assert len(server.asked) == 4


@pytest.mark.parametrize("value", ["", "true", "TRUE FALSE", "1", "NONE", "TERMINATE"])
def test_a_word_that_means_nothing_is_no_notice(
    server: FakeGcp, preempted: Listener, value: str
) -> None:
    server.set("preempted", value)
    with pytest.raises(Unknown, match="means nothing"):
        preempted.listen()


def test_what_is_not_of_a_metadata_server_is_not_believed(
    server: FakeGcp, preempted: Listener
) -> None:
    server.flavor = "Vanilla"
    server.set("preempted", "TRUE")
    with pytest.raises(Unknown, match="Metadata-Flavor"):
        preempted.listen()


def test_after_a_silence_it_is_asked_for_what_holds_now(
    server: FakeGcp, preempted: Listener
) -> None:
    preempted.listen()
    server.faults = [503]
    with pytest.raises(Unknown):
        preempted.listen()
    preempted.listen()
    assert "wait_for_change" not in server.asked[-1][1]
