"""A controller that only observes: commands say that nothing is acted on, and wait for nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from elasticd.cli import main
from elasticd.cli.admin_client import AdminClient
from elasticd.cli.examine import daemon as daemon_look
from elasticd.cli.examine.finding import Level
from elasticd.cli.giving_back import GivingBack, MachinesLeft
from elasticd.cli.run_reload import Reloads
from tests.cli.fake_daemon import FakeDaemon, fake_daemon
from tests.cli.samples import sample_status

TOLD = {
    "text": "the controller has only observed for 2m",
    "fault": "ZeroDivisionError in core/decide.py Core.step",
    "message": "ZeroDivisionError('a bug')",
    "times": 3,
    "age": 120.0,
    "do": "stop it and start it again",
    "below": "what is below is what the ledger held",
}


class Observing(FakeDaemon):
    """Refuses whatever would change something, as such a controller does."""

    def answer(self, method: str, url: str, body: Any) -> tuple[int, Any]:
        if method == "GET":
            return super().answer(method, url, body)
        self.asked.append((url, body))
        return 409, {"error": "the controller only observes", "observe_only": True}


def observing(**more: Any) -> dict[str, Any]:
    return {"observe_only": TOLD, **sample_status(**more)}


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeDaemon]:
    with fake_daemon(tmp_path / "admin.sock", Observing) as serving:
        serving.statuses = [observing()]
        yield serving


@pytest.mark.parametrize(
    "command",
    [
        ["drain", "k3f9-4-1"],
        ["undrain", "k3f9-4-1"],
        ["scale", "tiny", "2"],
        ["scale", "tiny", "auto"],
        ["reload"],
        ["drill", "preempt", "k3f9-4-1"],
        ["down", "--yes"],
    ],
)
def test_what_would_change_something_is_1_and_said_also_as_json(
    command: list[str], daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--socket", str(daemon.path)]) == 1
    assert "observe" in capsys.readouterr().err
    assert main([*command, "--json", "--socket", str(daemon.path)]) == 1
    told = json.loads(capsys.readouterr().out)
    assert ("observe" in told["error"], told["exit_code"]) == (True, 1)


def test_down_asks_nothing_of_a_controller_that_does_nothing(daemon: FakeDaemon) -> None:
    assert main(["down", "--yes", "--socket", str(daemon.path)]) == 1
    assert daemon.asked == []


def test_the_reasons_begin_with_that_nothing_is_acted_on(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status", "--why", "--socket", str(daemon.path)]) == 1
    shown = capsys.readouterr().out
    assert shown.startswith("! OBSERVE ONLY: the controller has only observed")
    assert "tiny: wants" in shown


def test_for_doctor_it_is_a_failure_with_what_to_do(daemon: FakeDaemon) -> None:
    first, *_ = daemon_look.examine(daemon_look.ask(AdminClient(daemon.path)))
    assert (first.level, first.advice) == (Level.FAIL, "stop it and start it again")
    assert "nothing is acted on" in first.text


@pytest.mark.parametrize("down", [None, {"left": 2}])
async def test_the_end_of_run_waits_for_no_machine_that_it_will_not_give_back(
    down: Any, daemon: FakeDaemon, tmp_path: Path
) -> None:
    daemon.statuses = [observing(down=down)]
    giving_back = GivingBack(AdminClient(daemon.path), tmp_path, lambda line: None, asyncio.Event())
    async with asyncio.timeout(20):
        with pytest.raises(MachinesLeft, match="only observed"):
            await giving_back.run(lambda: False, patience=1000.0)


async def test_a_hangup_is_not_said_to_be_taken_by_it(daemon: FakeDaemon) -> None:
    said: list[str] = []
    reloads = Reloads(AdminClient(daemon.path), lambda: pytest.fail("read again"), said.append)
    assert (await reloads._outcome({}))["problem"] == TOLD["text"]
