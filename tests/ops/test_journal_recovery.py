"""What was out of reach is told once more when it answers again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp

from elasticd.ops.admin import reading_app
from elasticd.ops.admin_site import serve_tcp
from elasticd.ops.journal_recovery import Troubles
from elasticd.ops.journal_story import tell
from elasticd.runtime.ledger import JournalEntry
from tests.cli.real_admin import Controller

AWAY = {"type": "ClusterUnreachable", "message": "refused"}
BACK = {"type": "ClusterObserved", "nodes": [], "replicas": [], "complete": True, "detail": ""}
FOLDED = {"type": "Changed", "of": "ClusterObserved", "lists": {}, "rest": {}}
AGAIN = "the cluster agent answers again, after 12 s"


def story(*facts: tuple[float, int, dict[str, Any]]) -> list[str]:
    troubles = Troubles()
    told = [
        tell(JournalEntry(at, (fact,), {"reasons": []}, seq, epoch), troubles)
        for seq, (at, epoch, fact) in enumerate(facts, 1)
    ]
    return [fact["text"] for entry in told if entry is not None for fact in entry["facts"]]


def test_an_agent_that_answers_again_gets_a_line() -> None:
    for back in (BACK, FOLDED):
        told = story((100.0, 1, AWAY), (105.0, 1, AWAY), (112.0, 1, back), (113.0, 1, back))
        assert told[-1] == AGAIN
        assert told.count(AGAIN) == 1


def test_a_list_that_comes_again_gets_a_line() -> None:
    failed = {
        "type": "ListFailed",
        "pool": "spot",
        "what": "instances",
        "error": "E",
        "message": "",
    }
    other = {"type": "InstancesListed", "pool": "lab", "instances": []}
    back = {"type": "Changed", "of": "InstancesListed", "rest": {"pool": "spot"}, "lists": {}}
    told = story((1.0, 1, failed), (2.0, 1, other), (4.0, 1, back), (5.0, 1, back))
    assert told[1:] == ["instances are listed again, after 3 s"]


def test_what_never_failed_and_what_a_new_controller_finds_are_no_news() -> None:
    assert story((1.0, 1, BACK)) == []
    assert story((1.0, 1, AWAY), (2.0, 2, BACK)) == ["the cluster agent does not answer: refused"]


async def test_a_reader_hears_of_it_on_the_next_page_too(tmp_path: Path) -> None:
    controller = Controller({})
    controller.write(100.0, (AWAY,), [])
    controller.write(112.0, (BACK,), [])
    async with (
        serve_tcp(reading_app(controller.ports), "127.0.0.1", 0) as port,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session,
    ):

        async def page(**query: Any) -> Any:
            async with session.get("/api/v1/events", params=query) as answer:
                return await answer.json()

        first = await page(limit=1)
        assert first["next_seq"] == 1
        # Another reader who begins later and knows less takes nothing away from this one.
        await page(since_seq=0, since=110.0)
        second = await page(since_seq=1)
    assert [fact["text"] for fact in second["entries"][0]["facts"]] == [AGAIN]


STARTED = {"type": "Configured", "spec": {"cluster": "c", "models": [], "pools": []}}
TAKEN = "configuration taken: models none; pools none"


def test_an_agent_that_is_not_up_yet_when_a_life_begins_is_no_event() -> None:
    assert story((1.0, 1, STARTED), (2.0, 1, AWAY), (3.0, 1, BACK)) == [TAKEN]
    assert story((1.0, 1, STARTED), (2.0, 1, AWAY), (9.0, 2, STARTED), (10.0, 2, AWAY)) == [
        TAKEN,
        TAKEN,
    ]


def test_an_agent_that_is_away_for_longer_or_later_is_one() -> None:
    told = story((1.0, 1, STARTED), (2.0, 1, AWAY), (16.0, 1, AWAY), (20.0, 1, BACK))
    assert told == [
        TAKEN,
        "the cluster agent does not answer: refused",
        "the cluster agent answers again, after 4 s",
    ]
