"""`elasticd down`: it ends when nothing can be left, and says so when something may be."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from elasticd.cli import down as down_module
from elasticd.cli import giving_back, main
from elasticd.cli.admin_client import AdminClient
from elasticd.cli.descent import Descent
from elasticd.cli.giving_back import GivingBack, MachinesLeft
from tests.cli.fake_daemon import FakeDaemon, fake_daemon
from tests.cli.ledgers import write_ledger
from tests.cli.samples import sample_status

ORPHAN = {"instance_id": "i-77", "price_micros": 1_000_000, "currency": "USD", "seconds_left": 25.0}
FOREIGN = {
    "instance_id": "i-9",
    "ledger_id": "theirs",
    "price_micros": 500_000,
    "currency": "USD",
}
OUTAGE = {"kind": "outage", "text": "instances: Unavailable: 502", "age": 40.0}


def going_down(nodes: int = 0, **pool: Any) -> dict[str, Any]:
    status = sample_status(down={"left": nodes + len(pool.get("orphans", ()))})
    status["nodes"] = status["nodes"][:nodes]
    status["pools"][0].update(pool)
    return status


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDaemon]:
    monkeypatch.setattr(down_module, "_POLL", 0.0)
    monkeypatch.setattr(giving_back, "_POLL", 0.0)
    with fake_daemon(tmp_path / "admin.sock") as serving:
        yield serving


def down(daemon: FakeDaemon, *argv: str) -> int:
    return main(["down", "--yes", "--socket", str(daemon.path), *argv])


def test_a_pool_in_an_outage_is_waited_for_and_never_called_empty(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.statuses = [going_down(troubles=[OUTAGE])]
    assert down(daemon, "--wait", "50ms") == 1
    said = capsys.readouterr()
    waits = "waiting for the provider of pool here to answer (instances: Unavailable: 502): what it"
    assert waits in said.out
    assert "nothing is left" not in said.out
    assert (
        "maybe still running, and paid for: what pool here has: its provider does not" in said.err
    )
    assert "the daemon goes on trying" in said.err


def test_what_is_waited_for_is_one_sentence_that_names_every_machine_its_pool_and_its_trouble(
    daemon: FakeDaemon,
) -> None:
    status = going_down(2, unsettled="a new list of pool here")
    status["nodes"][1].update(phase="terminating", trouble="not ended yet: Unavailable: 503")
    daemon.statuses = [status]
    assert Descent(AdminClient(daemon.path), "test").look() == (
        "2 machines to end: k3f9-4-1 (pool here, ready), k3f9-4-2 (pool here, terminating: not "
        "ended yet: Unavailable: 503); and for a new list of pool here, to be sure that nothing is "
        "left there"
    )


def test_an_outage_that_ends_is_no_reason_to_give_up(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.statuses = [going_down(1, troubles=[OUTAGE]), going_down(1), going_down()]
    assert down(daemon) == 0
    assert "1 machine ended in 0 s; nothing is left" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("listed_age", "waits"),
    [
        (None, "the provider of pool here to say what it has (its provider has not listed it yet)"),
        (3600.0, "the provider of pool here to answer: what it has is not known"),
    ],
)
def test_a_pool_without_a_fresh_list_is_not_an_empty_one(
    daemon: FakeDaemon, listed_age: float | None, waits: str
) -> None:
    daemon.statuses = [going_down(listed_age=listed_age), going_down()]
    descent = Descent(AdminClient(daemon.path), "test")
    assert descent.look() == waits
    assert descent.look() is None


def test_a_machine_delivered_late_is_waited_for_and_told_as_ended(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.statuses = [
        going_down(2),
        going_down(1),
        going_down(orphans=[ORPHAN]),
        going_down(),
    ]
    assert down(daemon) == 0
    out = capsys.readouterr().out
    assert "waiting for 1 machine to end: i-77 (pool here, without a node, ended in 25s)" in out
    assert "ended i-77 (pool here, ? at 1.00 USD/h)" in out
    assert "3 machines ended" in out


def test_that_time_passes_is_no_news_and_told_once(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.statuses = [
        *(going_down(orphans=[{**ORPHAN, "seconds_left": left}]) for left in (75.0, 65.0, 9.0)),
        going_down(),
    ]
    assert down(daemon) == 0
    assert capsys.readouterr().out.count("waiting for") == 1


def test_machines_of_another_ledger_are_named_left_alone_and_not_nothing(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.statuses = [going_down(1, foreign_machines=[FOREIGN])]
    daemon.statuses.append(going_down(foreign_machines=[FOREIGN]))
    assert down(daemon) == 1
    said = capsys.readouterr()
    assert "no machine of ours is left" in said.out
    assert "nothing is left" not in said.out
    assert "1 machine of this cluster name belongs to another ledger (theirs)" in said.err
    assert "`elasticd adopt`, then `elasticd down` again" in said.err


def test_machines_of_a_pool_that_left_the_configuration_are_not_waited_for(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    status = going_down(1)
    status["unmanaged"] = [{"node_id": "k3f9-4-1", "pool": "old"}]
    daemon.statuses = [status]
    assert down(daemon) == 1
    said = capsys.readouterr()
    assert "0 machines ended" in said.out
    assert "maybe still running, and paid for: k3f9-4-1" in said.err
    assert "put their pools back" in said.err


def test_as_json_what_may_be_left_is_told_too(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.statuses = [going_down(1, troubles=[OUTAGE], foreign_machines=[FOREIGN])]
    assert down(daemon, "--json", "--wait", "0s") == 1
    told = json.loads(capsys.readouterr().out)
    assert told["left"] == [
        "k3f9-4-1 (pool here, ready)",
        "what pool here has: its provider does not answer (instances: Unavailable: 502)",
    ]
    assert (told["ended"], [m["instance_id"] for m in told["foreign"]]) == ([], ["i-9"])


def test_an_interrupted_down_says_what_may_be_left(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("elasticd.cli.down.time.sleep", interrupt)
    daemon.statuses = [going_down(1)]
    assert down(daemon) == 130
    told = "maybe still running, and paid for: k3f9-4-1 (pool here, ready); interrupted; the daemon"
    assert told in capsys.readouterr().err


CONFIG = """
cluster: prod
state_dir: state
node_pools: [{name: here, provider: local, max_nodes: 2}]
models: [{name: m, source: "file:weights"}]
"""


def test_without_a_daemon_the_machines_that_its_ledger_knows_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "elasticd.yaml"
    config.write_text(CONFIG)
    write_ledger(tmp_path / "state")
    assert main(["down", "--yes", "-c", str(config)]) == 3
    told = capsys.readouterr().err
    assert "1 machine of it may be running and paid for: node-ab-1-1; start it with" in told
    assert "node-ab-1-2" not in told


def test_without_a_daemon_and_with_a_damaged_ledger_what_is_rented_is_not_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "elasticd.yaml"
    config.write_text(CONFIG)
    write_ledger(tmp_path / "state")
    (tmp_path / "state" / "ledger.sqlite").write_bytes(b"x" * 5000)
    assert main(["down", "--yes", "-c", str(config)]) == 3
    told = capsys.readouterr().err
    assert "what is rented is not known: " in told
    assert "`elasticd leaks` asks the providers" in told


def test_without_a_daemon_and_without_its_ledger_the_copy_to_start_from_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "elasticd.yaml"
    config.write_text(CONFIG)
    write_ledger(tmp_path / "state")
    (tmp_path / "state" / "ledger.sqlite").unlink()
    (tmp_path / "state" / "ledger.sqlite-wal").write_bytes(b"")
    assert main(["down", "--yes", "-c", str(config)]) == 3
    lines = capsys.readouterr().err.splitlines()
    assert any("ledger.previous.sqlite is a whole copy" in line for line in lines)
    assert lines[-1] == "`elasticd leaks` asks the providers"


def give_back(daemon: FakeDaemon, said: list[str], **more: Any) -> None:
    async def run() -> None:
        back = GivingBack(
            AdminClient(daemon.path), daemon.path.parent, said.append, asyncio.Event()
        )
        await back.run(lambda: False, **more)

    asyncio.run(run())


def test_the_end_of_run_gives_up_when_nothing_ends_and_names_what_may_be_left(
    daemon: FakeDaemon,
) -> None:
    said: list[str] = []
    daemon.statuses = [going_down(1, troubles=[OUTAGE])]
    with pytest.raises(MachinesLeft) as left:
        give_back(daemon, said, standstill=0.05)
    told = "nothing has ended for 0 s, still there: k3f9-4-1 (pool here, ready), what pool here has"
    assert told in str(left.value)
    assert "maybe still running, and paid for: k3f9-4-1 (pool here)" in str(left.value)
    assert "no machine is left" not in said


def test_the_end_of_run_names_machines_of_another_ledger(daemon: FakeDaemon) -> None:
    said: list[str] = []
    daemon.statuses = [going_down(foreign_machines=[FOREIGN])]
    give_back(daemon, said)
    assert said[-1].startswith("no machine of ours is left; 1 machine of this cluster name belongs")


def test_the_end_of_run_does_not_wait_for_pools_that_nobody_can_ask(daemon: FakeDaemon) -> None:
    status = going_down(1)
    status["unmanaged"] = [{"node_id": "k3f9-4-1", "pool": "old"}]
    daemon.statuses = [status]
    with pytest.raises(MachinesLeft, match="not configured any more"):
        give_back(daemon, [])
