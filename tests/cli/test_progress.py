"""What `elasticd run` tells on the way to the first replica."""

from __future__ import annotations

import io

from rich.console import Console

from elasticd.cli.progress import Progress
from elasticd.cli.spinner import Spinner
from tests.cli.samples import sample_status


def test_each_thing_is_told_once_and_again_when_it_changes() -> None:
    progress = Progress()
    first = progress.news(sample_status())
    assert "node k3f9-4-2 (pool here): booting: starting ray" in first
    assert "replica k3f9-4-4 of tiny: engine: loading weights" in first
    assert progress.news(sample_status()) == []
    later = sample_status()
    later["nodes"][1]["boot"] = "up"
    assert progress.news(later) == ["node k3f9-4-2 (pool here): booting: up"]


def test_a_node_that_is_forgotten_is_told_as_gone_once() -> None:
    progress = Progress()
    progress.news(sample_status())
    fewer = sample_status()
    del fewer["nodes"][1]
    assert progress.news(fewer) == ["node k3f9-4-2: is gone"]
    assert progress.news(fewer) == []


def test_it_serves_from_the_first_ready_replica_on() -> None:
    progress = Progress()
    status = sample_status()
    status["models"][0]["ready"] = 0
    progress.news(status)
    assert not progress.serving
    progress.news(sample_status())
    progress.news(status)
    assert progress.serving


def test_what_is_waited_for_is_the_engine_before_the_node() -> None:
    status = sample_status()
    assert Progress.waiting_for(status) == "engine of tiny: loading weights"
    status["replicas"] = []
    assert Progress.waiting_for(status) == "node k3f9-4-2: starting ray"


def test_without_a_terminal_waiting_is_repeated_seldom_and_with_the_time() -> None:
    said: list[str] = []
    clock = iter([0.0, 1.0, 14.0, 16.0, 16.0, 17.0, 40.0, 40.0])
    console = Console(file=io.StringIO(), force_terminal=False)
    with Spinner(said.append, 15.0, console, lambda: next(clock)) as spinner:
        for _ in range(5):
            spinner.waiting("an engine")
    assert said == ["waiting for an engine (16 s)", "waiting for an engine (40 s)"]


def test_what_it_usually_takes_is_told_where_it_is_known() -> None:
    status = sample_status()
    status["replicas"][1]["usual"] = 62.0
    expected = "engine of tiny: loading weights, usually ~1m2s in all"
    assert Progress.waiting_for(status) == expected


def test_a_model_that_failed_is_told_once_with_its_engines_last_words() -> None:
    progress, status = Progress(), sample_status()
    progress.news(status)
    status["models"][0].update(failed=True, last_cause="exit 1", last_tail=["OSError: no such x"])
    (told,) = progress.news(status)
    assert "model tiny has failed, nothing more is tried: exit 1" in told
    assert "| OSError: no such x" in told
    assert progress.news(status) == []


def test_an_agent_that_is_not_up_yet_is_told_only_when_it_stays_away() -> None:
    progress = Progress()
    status = sample_status()
    blocked = "no machine could join: the cluster agent does not answer (refused)"
    status["models"][0]["blocked"] = blocked
    status["controller"]["uptime"] = 2.0
    assert not any(blocked in line for line in progress.news(status))
    status["controller"]["uptime"] = 16.0
    assert progress.news(status) == [f"model tiny: {blocked}"]
