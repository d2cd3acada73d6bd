"""Whatever happens in whatever order, a journal of it is decided again as it was."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from elasticd.runtime.replay import replay
from tests.core.machine import AnyOrder
from tests.runtime.journals import RecordedCore, recorded


class Journaled(AnyOrder):
    """The proof's machine, with a journal kept of all its lives."""

    steps = 0
    lives = 0
    quiet = 0
    resumed = 0

    def __init__(self) -> None:
        self.journal = recorded()
        super().__init__()

    def teardown(self) -> None:
        super().teardown()
        core: Any = self.world.core
        core.finish(self.world.now)
        report = replay(self.journal.entries)
        assert (report.differences, report.skipped) == ([], [])
        assert [life.epoch for life in report.lives] == list(range(1, self.world.epoch + 1))
        Journaled.steps += report.steps
        Journaled.lives += len(report.lives)
        self._begin_in_the_middle()
        Journaled.quiet += report.steps - sum(life.decisions for life in report.lives)

    def _begin_in_the_middle(self) -> None:
        """From each place in the last life at which it was written what the core remembered."""
        entries = [e for e in self.journal.entries if e.epoch == self.world.epoch]
        for start in range(1, len(entries), len(entries) // 3 + 1):
            report = replay(entries[start:])
            assert report.differences == []
            assert not report.damaged
            Journaled.resumed += len(report.lives)


def test_any_life_is_decided_again_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.core.world.Core", RecordedCore)
    monkeypatch.setattr("elasticd.runtime.recorder.QUIET_SIZE", 2000)
    monkeypatch.setattr("elasticd.runtime.recorder.MEMORY_PERIOD", 50.0)
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        Journaled,
        settings=settings(
            max_examples=15,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
    assert Journaled.steps > 2000
    assert Journaled.quiet > 500
    assert Journaled.lives >= 15
    assert Journaled.resumed > 20
