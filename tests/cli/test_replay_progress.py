"""Who waits for a replay sees how far it is; nobody else is told more than now and then."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
from rich.console import Console

from elasticd.cli.replay_progress import ReplayProgress
from elasticd.runtime.replay_report import Life, Report


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """A clock that shows the last of these."""
    times = [100.0]
    monkeypatch.setattr("elasticd.cli.replay_progress.time.monotonic", lambda: times[-1])
    yield times
    monkeypatch.undo()


REPORT = Report("c", [Life(1, "c", steps=5000, differences=2)], entries=1200)


def test_in_a_file_there_is_a_line_every_ten_seconds(
    ticking: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    with ReplayProgress(1000, Console(file=io.StringIO())) as progress:
        for _ in range(25):
            progress.show(REPORT)
            ticking.append(ticking[-1] + 1.0)
    told = capsys.readouterr()
    line = "elasticd: 1,200 of 1,200 entries, 5,000 steps, 2 decided otherwise"
    assert (told.out, told.err.splitlines()) == ("", [line] * 2)


def test_a_short_replay_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with ReplayProgress(1000) as progress:
        progress.show(REPORT)
    assert capsys.readouterr().err == ""


def test_in_a_terminal_a_line_changes_and_goes_away(
    capsys: pytest.CaptureFixture[str],
) -> None:
    screen = io.StringIO()
    with ReplayProgress(3000, Console(file=screen, force_terminal=True, width=120)) as progress:
        progress.show(REPORT)
        assert progress.shown.startswith("1,200 of 3,000 entries")
    assert "\x1b[" in screen.getvalue()
    assert capsys.readouterr().err == ""
