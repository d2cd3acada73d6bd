"""A machine's watcher tells the agent what its cloud says of the machine's end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.node.fake_agent import FakeAgent
from tests.node.fake_metadata import ACTION, REBALANCE, FakeEc2, FakeGcp, running
from tests.node.programs import Program, program
from tests.node.waiting import eventually

HINT = '{"noticeTime": "2026-10-01T08:20:00Z"}'


@pytest.fixture
def imds() -> Iterator[FakeEc2]:
    with running(FakeEc2()) as fake:
        yield fake


def goes(seconds: float) -> str:
    when = datetime.now(UTC) + timedelta(seconds=seconds)
    return f'{{"action": "terminate", "time": "{when:%Y-%m-%dT%H:%M:%SZ}"}}'


def _watcher(
    folder: Path, agent: FakeAgent, source: str, url: str
) -> AbstractContextManager[Program]:
    return program(
        folder,
        "elasticd.node.watcher",
        *("--node-id", "n-1", "--agent", agent.url),
        ELASTICD_JOIN_TOKEN="once",
        ELASTICD_NODE_DIR=str(folder / "node"),
        ELASTICD_NOTICES=source,
        ELASTICD_METADATA_URL=url,
    )


def _last(agent: FakeAgent) -> tuple[list[dict[str, Any]], bool]:
    if not agent.reports:
        return [], False
    report = agent.reports[-1]
    return report["notices"], report["notices_complete"]


def test_a_notice_of_ec2_reaches_the_agent_and_is_the_same_after_a_restart(
    tmp_path: Path, agent: FakeAgent, imds: FakeEc2
) -> None:
    imds.items = {ACTION: goes(100), REBALANCE: HINT}
    with _watcher(tmp_path, agent, "ec2", imds.url) as watcher:
        eventually(lambda: _last(agent)[1])
        first = _last(agent)[0]
        assert [n["kind"] for n in first] == ["interruption", "rebalance"]
        assert 0 < first[0]["seconds_left"] <= 101
        assert first[1]["seconds_left"] is None
        assert f"notice of interruption: {100:.0f}"[:24] in watcher.said()
    agent.reports.clear()
    with _watcher(tmp_path, agent, "ec2", imds.url):
        eventually(lambda: _last(agent)[1])
        again = _last(agent)[0]
    assert [n["notice_id"] for n in again] == [n["notice_id"] for n in first]


def test_a_preemption_on_google_cloud_is_told_at_once_not_with_the_next_report(
    tmp_path: Path, agent: FakeAgent
) -> None:
    with running(FakeGcp()) as server, _watcher(tmp_path, agent, "gcp", server.url):
        eventually(lambda: "up" in agent.phases() and _last(agent) == ([], True))
        eventually(lambda: "preempted" in server.hung)
        reports = len(agent.reports)
        server.set("preempted", "TRUE")
        eventually(lambda: _last(agent)[0])
        assert len(agent.reports) <= reports + 2
    [notice] = _last(agent)[0]
    assert notice["kind"] == "interruption"
    assert notice["seconds_left"] <= 30


def test_a_machine_whose_service_is_away_reports_that_nothing_is_known(
    tmp_path: Path, agent: FakeAgent
) -> None:
    with _watcher(tmp_path, agent, "ec2", "http://127.0.0.1:9"):
        eventually(lambda: "up" in agent.phases())
        assert _last(agent) == ([], False)


def test_a_machine_of_a_pool_without_notices_asks_nobody_and_knows_nothing(
    tmp_path: Path, agent: FakeAgent, imds: FakeEc2
) -> None:
    with _watcher(tmp_path, agent, "", imds.url):
        eventually(lambda: "up" in agent.phases())
    assert imds.asked == []
    assert _last(agent) == ([], False)


def test_a_notice_that_did_not_arrive_is_told_again_soon(
    tmp_path: Path, agent: FakeAgent, imds: FakeEc2
) -> None:
    imds.items = {ACTION: goes(100)}
    agent.report_status = [503, 503, 200]
    with _watcher(tmp_path, agent, "ec2", imds.url):
        eventually(lambda: _last(agent)[0])
