"""The replica actor's four methods, without Ray, on a real engine process."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from elasticd.agent_api.messages import ReplicaOrder, ReplicaReport
from elasticd.node.host_memory import Memory
from elasticd.ray_side import engine_probe
from elasticd.ray_side import replica as module
from elasticd.ray_side.memory_gate import MemoryGate
from elasticd.ray_side.replica import ReplicaActor
from tests.node.stub_smi import StubSmi
from tests.node.waiting import alive, eventually
from tests.ray_side.fake_cluster import order

pytestmark = pytest.mark.slow

STUB = str(Path(__file__).parent / "stub_engine.py")
IDENTITY = {"replica_id": "r-1", "incarnation": 1, "node_id": "n-1", "model": "m", "spec_hash": "h"}


def _order(*words: str, **more: Any) -> dict[str, Any]:
    argv = (sys.executable, STUB, "{port}", *words)
    made: ReplicaOrder = order(engine_kind="command", engine_argv=argv, **more)
    return made.to_json()


def _report(actor: ReplicaActor) -> ReplicaReport:
    return ReplicaReport.from_json(actor.state())


def _is(actor: ReplicaActor, phase: str) -> bool:
    return _report(actor).phase == phase


def _asked(url: str, key: str) -> int:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {key}"})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code


@pytest.fixture
def actor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ReplicaActor]:
    monkeypatch.setenv("ELASTICD_NODE_DIR", str(tmp_path / "node"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    monkeypatch.setenv("ELASTICD_DECLARED_GPUS", "2")
    made = ReplicaActor(IDENTITY, lambda: ("1",))
    yield made
    made.stop(0.0)
    eventually(lambda: _is(made, "stopped"))


def test_it_starts_becomes_ready_and_stops(actor: ReplicaActor) -> None:
    assert _report(actor).phase == "starting"
    actor.start(_order())
    eventually(lambda: _is(actor, "ready"))
    ready = _report(actor)
    assert ready.gpu_ids == ("1",)
    assert (ready.running, ready.generated_tokens, ready.stalled_for) == (0, 7, None)
    assert _asked(f"{ready.url}/v1/models", "the-engine-key") == 200
    assert _asked(f"{ready.url}/v1/models", "another key") == 401
    actor.stop(10.0)
    eventually(lambda: _is(actor, "stopped"))
    assert _report(actor).error == ""
    with pytest.raises(urllib.error.URLError):
        _asked(f"{ready.url}/health", "")


def test_the_same_order_again_starts_no_second_engine(actor: ReplicaActor) -> None:
    first = actor.start(_order())["url"]
    assert actor.start(_order())["url"] == first


def test_an_engine_that_ends_by_itself_is_stopped_with_its_last_line(actor: ReplicaActor) -> None:
    code = "import sys; print('no memory left for the cache'); sys.exit(4)"
    argv = (sys.executable, "-c", code)
    actor.start(order(engine_kind="command", engine_argv=argv).to_json())
    eventually(lambda: _is(actor, "stopped"))
    assert "exit 4" in _report(actor).error
    assert "no memory left for the cache" in _report(actor).error
    assert actor.logs(10) == ["no memory left for the cache"]


def test_an_engine_that_is_never_ready_is_given_up(actor: ReplicaActor) -> None:
    actor.start(_order("never", start_timeout=0.1))
    eventually(lambda: _is(actor, "stopped"))
    assert "not ready within" in _report(actor).error
    assert "starting API" in _report(actor).error


@pytest.mark.parametrize(
    ("word", "seen"), [("ill", "/health answered 500"), ("never", "nobody listens")]
)
def test_a_start_tells_what_its_health_call_gave_last(
    actor: ReplicaActor, word: str, seen: str
) -> None:
    actor.start(_order(word))
    eventually(lambda: _report(actor).load_phase == f"starting API, {seen}")
    assert _is(actor, "starting")


def test_an_engine_that_is_given_up_says_what_its_health_call_gave_last(
    actor: ReplicaActor,
) -> None:
    actor.start(_order("ill", start_timeout=1.0))
    eventually(lambda: _is(actor, "stopped"))
    assert _report(actor).error.endswith(", /health answered 500")


def test_an_engine_that_accepts_and_says_nothing_is_told_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine_probe, "TIMEOUT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = engine_probe.EngineAddress("127.0.0.1", silent.getsockname()[1], "k")
        assert engine_probe.health_problem(address) == "no answer to /health within 0.2 s"


def test_a_starting_engine_gets_a_short_grace_however_long_the_order(actor: ReplicaActor) -> None:
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('on'); time.sleep(600)"
    argv = (sys.executable, "-u", "-c", code)
    actor.start(order(engine_kind="command", engine_argv=argv).to_json())
    eventually(lambda: actor.logs(1))
    actor.stop(600.0)
    eventually(lambda: _is(actor, "stopped"), within=15)


def test_requests_that_run_without_tokens_are_seen(actor: ReplicaActor) -> None:
    actor.start(_order(engine_env=(("STUB_RUNNING", "1"),)))
    eventually(lambda: (_report(actor).stalled_for or 0.0) > 1.0)


def test_an_engine_that_falls_silent_counts_as_standing_still(
    actor: ReplicaActor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elasticd.ray_side.engine.HEALTH_PATIENCE", 0.5)
    monkeypatch.setattr("elasticd.ray_side.engine_probe.TIMEOUT", 0.3)
    actor.start(_order("tell-pid"))
    eventually(lambda: _is(actor, "ready"))
    pid = int(actor.logs(1)[0])
    os.kill(pid, signal.SIGSTOP)
    eventually(lambda: not _report(actor).answers)
    eventually(lambda: (_report(actor).stalled_for or 0.0) > 0.5)
    assert _report(actor).phase == "ready"
    os.kill(pid, signal.SIGCONT)
    eventually(lambda: _report(actor).answers)


def test_the_supervisors_death_leaves_nothing_behind(actor: ReplicaActor) -> None:
    actor.start(_order("grandchild", "tell-pid"))
    eventually(lambda: _is(actor, "ready"))
    pid = int(actor.logs(1)[0])
    grandchild = int(Path(f"/proc/{pid}/task/{pid}/children").read_text())
    status = Path(f"/proc/{pid}/status").read_text()
    os.kill(int(status.split("PPid:")[1].split()[0]), signal.SIGKILL)
    eventually(lambda: _is(actor, "stopped"))
    assert "supervisor was killed" in _report(actor).error
    assert not alive(pid)
    assert not alive(grandchild)


def test_devices_that_differ_stop_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    actor = ReplicaActor(IDENTITY, lambda: ("1",))
    actor.start(_order())
    assert _report(actor).phase == "stopped"
    assert "Ray assigned GPUs ['1'], CUDA_VISIBLE_DEVICES shows ['0']" in _report(actor).error


def test_a_full_port_range_stops_the_start(actor: ReplicaActor) -> None:
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen(1)
        port = stranger.getsockname()[1]
        actor.start(_order(port_min=port, port_max=port))
        assert "no free port" in _report(actor).error


def test_an_actor_nobody_gives_an_order_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    actor = ReplicaActor(IDENTITY, lambda: ("1",))
    assert _report(actor).phase == "starting"
    monkeypatch.setattr(module, "ORDER_PATIENCE", -1.0)
    assert _report(actor).phase == "stopped"
    assert "no order to start" in _report(actor).error
    actor.start(_order())
    assert _report(actor).phase == "stopped"


def test_the_four_methods_are_frozen() -> None:
    public = {name for name in vars(ReplicaActor) if not name.startswith("_")}
    assert public == {"start", "state", "stop", "logs"}


def test_a_gpu_that_is_not_free_gets_no_engine_and_stays_claimed_until_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    smi = StubSmi(tmp_path / "smi", gpus=2)
    smi.install(monkeypatch)
    smi.computes((os.getpid(), 1, "20480"))
    monkeypatch.setattr("elasticd.ray_side.engine_start.HELD_PATIENCE", 0.0)
    monkeypatch.setenv("ELASTICD_NODE_DIR", str(tmp_path / "node"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    left = threading.Event()
    actor = ReplicaActor(IDENTITY, lambda: ("1",), left.set)
    actor.start(_order())
    eventually(lambda: _is(actor, "stopped"))
    held = _report(actor)
    assert held.error.startswith(f"no engine was started: GPU 1 is held by pid {os.getpid()} (")
    assert held.holding == (held.error.removeprefix("no engine was started: "),)
    actor.stop(0.0)
    assert not left.is_set()
    smi.computes()
    assert left.wait(20)
    assert _report(actor).holding == ()
    assert _report(actor).error == held.error


class _Memory:
    """Host memory as a test says it is, from one look to the next."""

    def __init__(self, available: float) -> None:
        self.available = available

    def __call__(self) -> Memory:
        return Memory(limit=100 << 30, available=int(self.available * (1 << 30)))


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> _Memory:
    made = _Memory(available=1.0)
    monkeypatch.setattr(module, "MemoryGate", lambda: MemoryGate(memory=made))
    monkeypatch.setattr("elasticd.ray_side.memory_gate.POLL", 0.05)
    return made


def test_an_engine_waits_for_host_memory_says_so_and_starts_when_there_is_enough(
    actor: ReplicaActor, memory: _Memory
) -> None:
    actor.start(_order())
    wanted = "waiting for host memory (1.0 GiB available, 5.0 GiB needed)"
    eventually(lambda: _report(actor).load_phase == wanted)
    assert actor.logs(10) == []
    memory.available = 50.0
    eventually(lambda: _is(actor, "ready"))


def test_memory_that_never_comes_is_given_up_at_the_start_timeout(
    actor: ReplicaActor, memory: _Memory
) -> None:
    actor.start(_order(start_timeout=0.2))
    eventually(lambda: _is(actor, "stopped"))
    assert "1.0 GiB available, 5.0 GiB needed" in _report(actor).error


def test_a_replica_that_waits_for_memory_can_be_stopped(
    actor: ReplicaActor, memory: _Memory
) -> None:
    actor.start(_order())
    eventually(lambda: "host memory" in _report(actor).load_phase)
    actor.stop(600.0)
    eventually(lambda: _is(actor, "stopped"))
    assert _report(actor).error == ""
