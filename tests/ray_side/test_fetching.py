"""A replica whose weights come from a hub: the actor without Ray, the fetcher, a stub engine."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from elasticd.agent_api.messages import ReplicaReport
from elasticd.node.leftovers import MARKER
from elasticd.node.process_tree import marked
from elasticd.ray_side.fetching import weights_directory
from elasticd.ray_side.replica import ReplicaActor
from tests.node.waiting import eventually
from tests.ray_side.fake_cluster import order
from tests.weights.hub import REPO, RunningHub, running_hub, some_bytes

pytestmark = pytest.mark.slow

STUB = str(Path(__file__).parent / "stub_engine.py")
NODE = "n-fetching"
IDENTITY = {"replica_id": "r-1", "incarnation": 1, "node_id": NODE, "model": "m", "spec_hash": "h"}
MIB = 1 << 20


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[RunningHub]:
    with running_hub(tmp_path / "hub") as running:
        running.put("model.safetensors", some_bytes(2 * MIB))
        yield running


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "weights"


@pytest.fixture
def actor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ReplicaActor]:
    monkeypatch.setenv("ELASTICD_NODE_DIR", str(tmp_path / "node"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    monkeypatch.setenv("ELASTICD_DECLARED_GPUS", "2")
    for name in [name for name in os.environ if name.startswith("HF_")]:
        monkeypatch.delenv(name)
    made = ReplicaActor(IDENTITY, lambda: ("1",))
    yield made
    made.stop(0.0)
    eventually(lambda: _phase(made) == "stopped")


def _order(hub: RunningHub, directory: Path, *words: str, **more: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "engine_kind": "command",
        "engine_argv": (sys.executable, STUB, "{port}", "tell-place", "{model}", *words),
        "node_id": NODE,
        "weights": hub.weights,
        "fetch_env": (
            ("HF_ENDPOINT", hub.endpoint),
            ("HF_TOKEN", "the-token"),
            ("ELASTICD_WEIGHTS_DIR", str(directory)),
        ),
    }
    return order(**{**given, **more}).to_json()


def _report(actor: ReplicaActor) -> ReplicaReport:
    return ReplicaReport.from_json(actor.state())


def _phase(actor: ReplicaActor) -> str:
    return _report(actor).phase


def _ours() -> list[int]:
    return marked(MARKER, lambda value: value.startswith(os.environ["ELASTICD_NODE_DIR"]))


def test_a_replica_fetches_then_starts_then_is_ready(
    actor: ReplicaActor, hub: RunningHub, directory: Path
) -> None:
    hub.mood(rate=MIB)
    seen = [actor.start(_order(hub, directory))["phase"]]
    texts = set()

    def note() -> str:
        report = _report(actor)
        texts.add(report.load_phase)
        if report.phase != seen[-1]:
            seen.append(report.phase)
        return report.phase

    eventually(lambda: note() == "ready")
    assert seen == ["fetching", "starting", "ready"]
    assert any("% of 2 MiB" in text and "/s" in text for text in texts), texts
    place, offline, token = actor.logs(1)[0].split()
    assert place == str(directory / f"{REPO}@{hub.commit}")
    assert offline == "1"
    assert token == "None"


def test_weights_that_take_too_long_are_given_up_with_how_far_they_were(
    actor: ReplicaActor, hub: RunningHub, directory: Path
) -> None:
    hub.mood(rate=MIB // 8)
    actor.start(_order(hub, directory, fetch_timeout=5.0))
    eventually(lambda: _phase(actor) == "stopped")
    error = _report(actor).error
    assert error.startswith("weights took longer than 5 s, last: fetching weights ")
    assert "% of 2 MiB" in error
    assert "raise fetch_timeout" in error
    assert not _ours()


def test_the_engines_time_begins_when_the_weights_are_there(
    actor: ReplicaActor, hub: RunningHub, directory: Path
) -> None:
    hub.mood(only="content", rate=MIB)
    actor.start(_order(hub, directory, "never", start_timeout=0.5))
    eventually(lambda: _phase(actor) == "stopped")
    assert "not ready within" in _report(actor).error
    assert hub.sent("/content/") == 2 * MIB


def test_a_stop_ends_the_fetcher_at_once(
    actor: ReplicaActor, hub: RunningHub, directory: Path
) -> None:
    hub.mood(only="content", hang=True)
    actor.start(_order(hub, directory))
    eventually(lambda: hub.calls("/content/"))
    assert _ours()
    actor.stop(600.0)
    eventually(lambda: _phase(actor) == "stopped")
    assert _report(actor).error == ""
    assert not _ours()


def test_a_fetch_that_is_refused_stops_the_replica_with_the_sentence(
    actor: ReplicaActor, hub: RunningHub, directory: Path
) -> None:
    hub.mood(token="another-token")
    actor.start(_order(hub, directory))
    eventually(lambda: _phase(actor) == "stopped")
    report = _report(actor)
    assert "is gated (403" in report.error
    assert "the-token" not in str(report)


def test_the_fetcher_dies_with_its_supervisor(
    actor: ReplicaActor, hub: RunningHub, directory: Path
) -> None:
    hub.mood(only="content", hang=True)
    actor.start(_order(hub, directory))
    eventually(lambda: hub.calls("/content/"))
    fetcher = _ours()[0]
    status = Path(f"/proc/{fetcher}/status").read_text()
    os.kill(int(status.split("PPid:")[1].split()[0]), signal.SIGKILL)
    eventually(lambda: _phase(actor) == "stopped")
    assert "its supervisor was killed" in _report(actor).error
    assert not _ours()


def test_an_engine_that_cannot_be_started_after_the_fetch_says_why(
    actor: ReplicaActor, hub: RunningHub, directory: Path
) -> None:
    actor.start(_order(hub, directory, engine_kind="unheard-of"))
    eventually(lambda: _phase(actor) == "stopped")
    assert "unheard-of" in _report(actor).error


@pytest.mark.parametrize(
    ("fetch_env", "environ", "wanted"),
    [
        ((("ELASTICD_WEIGHTS_DIR", "/data"),), {"XDG_CACHE_HOME": "/c"}, "/data"),
        ((), {"XDG_CACHE_HOME": "/c", "ELASTICD_NODE_DIR": "/n"}, "/c/elasticd/weights"),
        ((), {"ELASTICD_NODE_DIR": "/n", "HOME": "/h"}, "/n/weights"),
        ((), {"HOME": "/h"}, "/h/.elasticd-node/weights"),
    ],
)
def test_weights_lie_where_it_is_configured_else_where_the_host_keeps_caches(
    fetch_env: Any, environ: dict[str, str], wanted: str
) -> None:
    assert weights_directory(order(fetch_env=fetch_env), environ) == Path(wanted)
