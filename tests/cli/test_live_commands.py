"""The program as people run it, against the real admin API on a unix socket."""

from __future__ import annotations

import json
import signal
import socket as listening
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from elasticd.cli.admin_client import AdminClient
from elasticd.core.events import DrainRequested, HoldReleased, ScaleHeld, UndrainRequested
from elasticd.errors import NotReachable
from tests.cli.real_admin import Controller, elasticd, environment, serving, started
from tests.cli.samples import sample_status

NODE = "k3f9-4-1"
C_LOCALE = {"LC_ALL": "C", "LANG": "C"}


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Controller]:
    status = sample_status()
    status["models"][0]["max_replicas"] = 4
    with serving(Controller(status), tmp_path / "admin.sock") as playing:
        yield playing


@pytest.fixture
def socket(controller: Controller, tmp_path: Path) -> tuple[str, str]:
    return ("--socket", str(tmp_path / "admin.sock"))


def test_status_is_0_when_well_and_1_when_degraded(
    controller: Controller, socket: tuple[str, str]
) -> None:
    done = elasticd("status", *socket)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("local  healthy")
    controller.told["models"][0]["ready"] = 0
    done = elasticd("status", *socket)
    assert done.returncode == 1
    assert done.stdout.startswith("local  starting"), "one replica loads"
    controller.told["models"][0]["starting"] = 0
    done = elasticd("status", *socket)
    assert done.returncode == 1
    assert done.stdout.startswith("local  degraded")
    assert "! model tiny: no replica is ready" in done.stdout


@pytest.mark.parametrize("python", [{}, {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}])
def test_status_piped_to_a_file_under_the_c_locale_keeps_chinese_names(
    controller: Controller, socket: tuple[str, str], python: dict[str, str]
) -> None:
    controller.told["models"][0]["name"] = "通义千问"
    controller.told["cluster"] = "上海"
    done = elasticd("status", *socket, env=environment(**C_LOCALE, **python))
    assert (done.returncode, done.stderr) == (0, "")
    # Where Python is told to stay with ASCII, characters are written as escapes, none is lost.
    names = ("通义千问", "上海") if not python else (r"\u901a\u4e49", r"\u4e0a\u6d77")
    assert all(name in done.stdout for name in names)


def test_commands_take_chinese_names_under_the_c_locale(
    controller: Controller, socket: tuple[str, str]
) -> None:
    controller.told["models"][0]["name"] = "通义/千问"
    done = elasticd("scale", "通义/千问", "2", *socket, env=environment(**C_LOCALE))
    assert (done.returncode, done.stderr) == (0, "")
    assert "通义/千问 is held at 2 replicas" in done.stdout
    (event,) = controller.emitted
    assert isinstance(event, ScaleHeld)
    assert event.model == "通义/千问"


def test_why_of_a_model_that_is_mistyped_names_the_nearest(
    controller: Controller, socket: tuple[str, str]
) -> None:
    assert "tiny: wants 2; 1 ready" in elasticd("status", "--why", "tiny", *socket).stdout
    done = elasticd("status", "--why", "tinny", *socket)
    assert done.returncode == 2
    assert "no model 'tinny'; did you mean `tiny`?" in done.stderr


def test_watch_as_json_is_one_object_a_change(
    controller: Controller, socket: tuple[str, str]
) -> None:
    process = started("status", "--watch", "--json", *socket)
    try:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        assert first["models"][0]["ready"] == 1
        # Time goes on, which is no change; then one replica more is ready, which is.
        controller.told = {**controller.told, "at": 1005.0, "cluster_seen_age": 0.9}
        models = [{**controller.told["models"][0], "ready": 2}]
        controller.told = {**controller.told, "models": models}
        second = json.loads(process.stdout.readline())
        assert second["models"][0]["ready"] == 2
        controller.told = {**controller.told, "cluster_detail": "the head is silent"}
        assert json.loads(process.stdout.readline())["cluster_detail"] == "the head is silent"
    finally:
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=20.0)
    assert (rest, errors, process.returncode) == ("", "", 1)


def test_watch_into_a_pipe_prints_all_once_and_then_what_is_new(
    controller: Controller, socket: tuple[str, str]
) -> None:
    controller.told["models"][0]["starting"] = 0
    controller.told["models"][0]["failures"] = 1
    controller.told["nodes"][0]["last_seen_age"] = 2.0
    process = started("status", "--watch", *socket)

    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first.startswith("--- ")
        line = ""
        while "Latest decisions" not in line:
            line = process.stdout.readline()
        process.stdout.readline()
        assert process.stdout.readline() == "\n"
        node = {**controller.told["nodes"][0], "age": 999.0, "last_seen_age": 3.0}
        told = {**controller.told, "at": 1005.0, "nodes": [node, controller.told["nodes"][1]]}
        controller.told = told
        models = [{**controller.told["models"][0], "failures": 0, "last_cause": ""}]
        controller.told = {**controller.told, "models": models}
        news = [process.stdout.readline().rstrip() for _ in range(4)]
        assert news[0].startswith("--- ")
        assert news[1].startswith("local  healthy")
        assert news[2].startswith("over: model tiny: 1 failed start")
        assert news[3] == ""
    finally:
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=20.0)
    assert (rest, errors, process.returncode) == ("", "", 0)


def test_events_are_a_log_with_time_subject_and_why(
    controller: Controller, socket: tuple[str, str]
) -> None:
    now = time.time()
    held = {"type": "ScaleHeld", "model": "tiny", "replicas": 2, "seconds": None, "by": "ann"}
    controller.write(now - 7200, (held,), [])
    controller.write(now - 10, (held,), [("model:tiny", "held at 2 by ann")])
    done = elasticd("events", *socket)
    assert done.returncode == 0
    assert [line[19:].split() for line in done.stdout.splitlines()] == [
        ["model:tiny", "held", "at", "2", "by", "ann"],
    ]
    assert len(elasticd("events", "--since", "3h", *socket).stdout.splitlines()) == 2
    assert elasticd("events", "node:", *socket).stdout == ""


def test_events_as_json_are_one_object_a_line(
    controller: Controller, socket: tuple[str, str]
) -> None:
    for _ in range(3):
        controller.write(time.time(), (), [("node:n", "ready")])
    lines = elasticd("events", "--json", *socket).stdout.splitlines()
    assert [json.loads(line)["seq"] for line in lines] == [1, 2, 3]


def test_events_follow_tells_what_comes(controller: Controller, socket: tuple[str, str]) -> None:
    controller.write(time.time(), (), [("node:n", "first")])
    process = started("events", "--follow", *socket)
    try:
        assert process.stdout is not None
        assert "first" in process.stdout.readline()
        controller.write(time.time(), (), [("node:n", "second")])
        assert "second" in process.stdout.readline()
    finally:
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20.0)
    assert (errors, process.returncode) == ("", 0)


def test_a_follower_of_a_quiet_hour_is_told_of_nothing_before_it(
    controller: Controller, socket: tuple[str, str]
) -> None:
    controller.write(time.time() - 7200, (), [("node:n", "long ago")])
    process = started("events", "--follow", "--since", "1m", *socket)
    try:
        assert process.stdout is not None
        assert all(controller.looked.acquire(timeout=20.0) for _ in range(2))  # it waits now
        controller.write(time.time(), (), [("node:n", "news")])
        assert "news" in process.stdout.readline()
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20.0)


def test_a_node_is_drained_within_two_minutes_unless_told_and_taken_back(
    controller: Controller, socket: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    env = environment(LOGNAME="ann", USER="ann")
    socket = ("--no-wait", *socket)
    assert elasticd("drain", NODE, *socket, env=env).returncode == 0
    done = elasticd("drain", NODE, "--deadline", "1h", *socket, env=env)
    assert f"{NODE} drains, 1h for what still runs; `elasticd undrain {NODE}`" in done.stdout
    controller.told["nodes"][0]["phase"] = "draining"
    assert elasticd("undrain", NODE, *socket[1:], env=env).returncode == 0
    assert controller.emitted == [
        DrainRequested(NODE, 120.0, "ann"),
        DrainRequested(NODE, 3600.0, "ann"),
        UndrainRequested(NODE, "ann"),
    ]


def test_a_node_that_is_mistyped_is_2_with_the_nearest_and_one_that_goes_already_is_1(
    controller: Controller, socket: tuple[str, str]
) -> None:
    done = elasticd("drain", "k3f9-4-7", *socket)
    assert done.returncode == 2
    assert "did you mean" in done.stderr
    assert f"`{NODE}`" in done.stderr
    controller.told["nodes"][0]["phase"] = "gone"
    assert elasticd("drain", NODE, *socket).returncode == 1
    assert controller.emitted == []


def test_a_model_is_held_for_a_while_and_given_back(
    controller: Controller, socket: tuple[str, str]
) -> None:
    env = environment(LOGNAME="ann", USER="ann")
    done = elasticd("scale", "tiny", "3", "--for", "2h", *socket, env=env)
    assert done.stdout == "tiny is held at 3 replicas for 2h\n"
    assert elasticd("scale", "tiny", "auto", *socket, env=env).returncode == 0
    assert controller.emitted == [ScaleHeld("tiny", 3, 7200.0, "ann"), HoldReleased("tiny", "ann")]


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (("9",), "max_replicas 4"),
        (("many",), "write 0, 1, 2, … or auto"),
        (("auto", "--for", "2h"), "leave --for out"),
        (("1", "--for", "7200"), "a duration needs a unit"),
        (("1", "--for", "0s"), "give a longer one"),
    ],
)
def test_a_count_or_time_that_cannot_be_is_2(
    controller: Controller, socket: tuple[str, str], argv: tuple[str, ...], told: str
) -> None:
    done = elasticd("scale", "tiny", *argv, *socket)
    assert done.returncode == 2
    assert told in done.stderr or "not a duration" in done.stderr
    assert controller.emitted == []


def test_a_node_that_may_be_several_is_2_with_all_of_them(
    controller: Controller, socket: tuple[str, str]
) -> None:
    for command in ("drain", "undrain"):
        done = elasticd(command, "k3f9-", *socket)
        assert done.returncode == 2
        assert "may be any of k3f9-4-1, k3f9-4-2; give more of the id" in done.stderr
    assert controller.emitted == []


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (("drain", ""), "a node's id is expected; `elasticd status` shows them"),
        (("undrain", " "), "a node's id is expected"),
        (("drill", "preempt", ""), "a node's id is expected"),
        (("scale", "", "2"), "a model's name is expected"),
    ],
)
def test_an_empty_name_is_wrong_usage_and_asks_nobody(argv: tuple[str, ...], told: str) -> None:
    done = elasticd(*argv, "--socket", "/nowhere/admin.sock")
    assert done.returncode == 2
    assert told in done.stderr


def test_reload_gives_a_daemon_up_that_takes_connections_and_never_answers(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    with listening.socket(listening.AF_UNIX) as hung:
        hung.bind(str(path))
        hung.listen()
        client = AdminClient(path, timeout=0.2)
        with pytest.raises(NotReachable, match=r"does not answer within 0\.2 s"):
            client.reload("ann")


def test_reload_tells_its_outcome_and_is_2_when_refused(
    controller: Controller, socket: tuple[str, str]
) -> None:
    controller.outcome.update(changed=["models[0].scaling"], needs_restart=["gateway.listen"])
    done = elasticd("reload", *socket)
    assert done.returncode == 0
    assert "changed: models[0].scaling" in done.stdout
    assert "at the next restart only: gateway.listen" in done.stdout
    controller.outcome["problem"] = "elasticd.yaml:3: colour: unknown key"
    done = elasticd("reload", *socket)
    assert done.returncode == 2
    assert "the old configuration stays: elasticd.yaml:3: colour" in done.stderr
