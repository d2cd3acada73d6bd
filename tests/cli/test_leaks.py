"""`elasticd leaks`: what it tells of every machine, and what it ends and never ends."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from elasticd.cli import leak_ending, leak_survey, main
from elasticd.core.actions import LaunchNode
from elasticd.core.codec import encode, to_json
from elasticd.core.events import Configured, Event
from elasticd.core.fleet import Node, Row
from elasticd.core.lifecycle import NodePhase
from elasticd.core.specs import FleetSpec, NodePool
from elasticd.provider import RateLimited, Unavailable
from elasticd.runtime.ledger import JournalEntry, Ledger
from tests.cli.fake_daemon import fake_daemon
from tests.cli.fake_pool import FakePool, install
from tests.cli.samples import sample_status

CONFIG = """
cluster: test
state_dir: state
node_pools:
  - {name: here, provider: fake, max_nodes: 2}
  - {name: there, provider: fake, max_nodes: 2}
models: [{name: m, source: "file:weights"}]
"""


class Site:
    """A configuration, its ledger as a controller leaves it, and what its providers have."""

    def __init__(self, root: Path) -> None:
        self.path = root / "elasticd.yaml"
        self.path.write_text(CONFIG)
        self.state_dir = root / "state"
        self.pools = {"here": FakePool(), "there": FakePool()}
        self.ledger_id = ""
        self.cluster = "test"

    def write(
        self,
        *nodes: Node,
        events: tuple[Event, ...] = (),
        launched: str = "",
        places: str = "",
    ) -> None:
        """A life of a controller, which leaves nodes in the ledger and `events` in its journal.

        `launched`: a node that it asked for and that it has forgotten since; `places`: where pool
        `here` was.
        """
        asyncio.run(self._write(nodes, events, launched, places))

    async def _write(
        self, nodes: tuple[Node, ...], events: tuple[Event, ...], launched: str, places: str
    ) -> None:
        ledger = await Ledger.open(self.state_dir)
        rows = [Row("node", node.id, encode(node)) for node in nodes]
        rows.append(Row("cluster", "name", {"name": self.cluster}))
        if places:
            rows.append(Row("place", "here", {"place": places}))
        self.ledger_id = ledger.restored.ledger_id  # part of the ids that it gives
        actions = [to_json(LaunchNode(self.minted(launched), "here", ()))] if launched else []
        told = tuple(to_json(event) for event in events)
        entry = JournalEntry(time.time(), told, {"actions": actions, "reasons": []})
        await ledger.commit(time.time(), rows, [entry])
        await ledger.aclose()

    def minted(self, number: str) -> str:
        """A node's id as a controller gives it, from `EPOCH-NUMBER`."""
        return f"n-{self.ledger_id[:8]}-{number}"

    def fleet(self, *pools: str, cluster: str = "test", place: str = "provider fake") -> Configured:
        """What a life was configured with."""
        made = tuple(NodePool(name, "fake", 1, place=place) for name in pools)
        return Configured(FleetSpec(cluster, (), made))

    def leaks(self, *argv: str) -> int:
        return main(["leaks", "-c", str(self.path), *argv])


def node(node_id: str, phase: NodePhase = NodePhase.READY, ago: float = 600.0, **more: Any) -> Node:
    then = time.time() - ago
    return Node(node_id, more.pop("pool", "here"), phase, then, then, **more)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    found = Site(tmp_path)
    install(monkeypatch, found.pools)
    monkeypatch.setattr(leak_ending, "_PAUSES", (0.0,))
    monkeypatch.setenv("COLUMNS", "240")
    return found


@pytest.fixture
def busy(site: Site) -> Site:
    """One known machine, one that nobody stands for, one of another ledger, one without marks."""
    site.write(node("node-1", instance_id="i-1"))
    here, ours = site.pools["here"], site.ledger_id
    here.add("i-1", "node-1", ours)
    here.add("i-2", "node-2", ours, launched_at=time.time() - 7200)
    here.add("i-3", "node-3", "theirs", price=None)
    here.add("i-4")
    return site


def test_a_fleet_in_which_all_is_known_has_no_leaks(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.write(node("node-1", instance_id="i-1"))
    site.pools["here"].add("i-1", "node-1", site.ledger_id)
    assert site.leaks() == 0
    out = capsys.readouterr().out
    assert "no leaks: 1 machine listed, all known" in out
    assert "i-1" not in out.replace("no leaks", "")
    assert site.leaks("--all") == 0
    assert "i-1" in capsys.readouterr().out
    assert [pool.closed for pool in site.pools.values()] == [2, 2]


def test_each_machine_that_should_not_be_there_is_told_with_what_it_costs(
    busy: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    assert busy.leaks() == 1
    lines = capsys.readouterr().out.splitlines()
    rows = {line.split()[1]: line for line in lines if line.startswith("  ")}
    assert "i-1" not in rows
    leak = rows["i-2"].split()
    assert leak[0] == "leak"
    assert leak[2:10] == ["here", "z-1", "a10.large", "spot", "2h", "0.50", "USD", "1.00"]
    assert "there is no node node-2" in rows["i-2"]
    assert rows["i-3"].split()[0] == "foreign"
    assert "elasticd adopt --ledger theirs" in rows["i-3"]
    assert rows["i-3"].split()[6] == "?"
    assert rows["i-4"].split()[0] == "unmarked"
    assert any("3 machines to look at: 1.00 USD/h + 1 of unknown price" in line for line in lines)
    assert any("`elasticd leaks --terminate` ends 1 machine of ours" in line for line in lines)


def test_as_json_everything_known_of_a_machine_is_told_and_the_rest_is_null(
    busy: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    assert busy.leaks("--json") == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["fine"], told["known"], told["unpriced"]) == (False, 1, 1)
    assert told["per_hour"] == {"USD": 1_000_000}
    by_id = {one["instance_id"]: one for one in told["machines"]}
    assert by_id["i-2"]["verdict"] == "leak"
    assert by_id["i-2"]["cost_micros"] == pytest.approx(1_000_000, rel=0.01)
    assert by_id["i-3"]["price_micros"] is None
    assert by_id["i-4"]["cost_micros"] is None


def test_terminate_ends_ours_without_a_node_until_it_is_not_found_and_nothing_else(
    busy: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    here = busy.pools["here"]
    here.asks = 3
    assert busy.leaks("--terminate", "--yes") == 1  # the foreign and the unmarked one are left
    assert here.terminated == ["i-2"] * 3
    assert sorted(here.machines) == ["i-1", "i-3", "i-4"]
    out = capsys.readouterr().out
    assert "ended i-2" in out
    assert "1 ended, 0 not" in out
    assert "2 more that this command never ends" in out


def test_terminate_of_all_that_is_wrong_is_0(site: Site) -> None:
    site.write(node("node-1", NodePhase.GONE, instance_id="i-1"))
    site.pools["here"].add("i-1", "node-1", site.ledger_id)
    assert site.leaks("--terminate", "--yes") == 0
    assert site.pools["here"].machines == {}


def test_terminate_asks_in_a_terminal_and_no_means_no(
    busy: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    questions: list[str] = []
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", lambda question: questions.append(question) or "n")
    assert busy.leaks("--terminate") == 1
    assert "1 machine of ours" in questions[0]
    assert busy.pools["here"].terminated == []
    assert "you said no" in capsys.readouterr().out


def test_without_a_terminal_nothing_is_ended_unless_yes_is_said(
    busy: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False)
    assert busy.leaks("--terminate") == 2
    assert "no terminal to ask in" in capsys.readouterr().err
    assert busy.pools["here"].terminated == []


def test_a_machine_that_becomes_a_nodes_before_the_call_is_left_alone(
    busy: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The daemon writes while people read the question.
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)

    def agree(_question: str) -> str:
        busy_rows.append(1)
        return "y"

    busy_rows: list[int] = []
    monkeypatch.setattr("builtins.input", agree)
    read = leak_ending.read_ledger

    def adopted_meanwhile(state_dir: Path) -> Any:
        view = read(state_dir)
        nodes = {**view.nodes, "node-2": {**view.nodes["node-1"], "id": "node-2"}}
        return type(view)(view.ledger_id, view.cluster, nodes)

    monkeypatch.setattr(leak_ending, "read_ledger", adopted_meanwhile)
    assert busy.leaks("--terminate") == 1
    assert busy_rows == [1]
    assert busy.pools["here"].terminated == []
    assert "not ended i-2: left alone: it is known by now" in capsys.readouterr().out


def test_a_ledger_that_is_damaged_between_two_calls_ends_nothing_more(
    busy: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    here = busy.pools["here"]
    here.asks = 5
    here.on_terminate = lambda: (busy.state_dir / "ledger.sqlite").write_bytes(b"")
    assert busy.leaks("--terminate", "--yes") == 1
    assert here.terminated == ["i-2"]
    assert "not ended i-2: left alone: " in capsys.readouterr().out


def test_a_machine_that_does_not_end_is_given_up_after_a_while_and_said(
    busy: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = busy.pools["here"]
    here.asks = 10**6
    monkeypatch.setattr(leak_ending.Ending.__init__, "__defaults__", (0.05,))
    assert busy.leaks("--terminate", "--yes") == 1
    assert set(here.terminated) == {"i-2"}
    assert "the provider is still ending it after 0.05 s" in capsys.readouterr().out


@pytest.mark.parametrize("broken", [Unavailable("HTML where JSON belongs"), RuntimeError("bug")])
def test_a_provider_that_does_not_answer_is_unknown_and_never_no_leaks(
    site: Site, broken: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    site.write(node("node-1", instance_id="i-1"))
    site.pools["here"].add("i-1", "node-1", site.ledger_id)
    site.pools["there"].broken = broken
    assert site.leaks() == 1
    out = capsys.readouterr().out
    assert "no leaks" not in out
    assert "! pool there: what is there is not known: Unavailable: " in out
    assert str(broken) in out
    assert site.leaks("--json") == 1
    assert list(json.loads(capsys.readouterr().out)["unknown_pools"]) == ["there"]


def test_a_provider_that_hangs_keeps_no_other_one_from_being_told(
    busy: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leak_survey, "_PATIENCE", 0.05)
    busy.pools["there"].hangs = True
    assert busy.leaks() == 1
    out = capsys.readouterr().out
    assert "pool there: what is there is not known: no list within 0.05 s" in out
    assert "i-2" in out


def test_a_provider_that_cannot_be_made_is_unknown(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.write()
    del site.pools["there"]
    assert site.leaks() == 1
    assert "! pool there: what is there is not known: cannot be opened" in capsys.readouterr().out


def test_the_ledger_is_read_after_the_lists_so_a_launch_under_way_is_no_leak(site: Site) -> None:
    site.write()
    here = site.pools["here"]
    here.add("i-1", "node-1", site.ledger_id)

    def written_meanwhile() -> None:
        import threading

        thread = threading.Thread(target=site.write, args=(node("node-1", NodePhase.REQUESTED),))
        thread.start()
        thread.join()

    here.on_list = written_meanwhile
    assert site.leaks() == 0


def test_while_the_daemon_is_down_its_machines_are_told_to_be_paid_for(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.write(node("node-1", instance_id="i-1"))
    site.pools["here"].add("i-1", "node-1", site.ledger_id, launched_at=time.time() - 3600)
    assert site.leaks() == 0
    out = capsys.readouterr().out
    assert "the daemon is not running and 1 machine of it is paid for (0.50 USD/h; so far" in out
    assert "start it with `elasticd run`" in out


@pytest.fixture
def daemon(busy: Site) -> Iterator[Any]:
    (busy.state_dir / "run").mkdir()
    with fake_daemon(busy.state_dir / "run" / "admin.sock") as serving:
        status = sample_status()
        status["ledger_id"] = busy.ledger_id
        status["pools"][0]["orphans"] = [{"instance_id": "i-2", "seconds_left": 25.0}]
        serving.statuses = [status]
        yield serving


def test_of_a_running_daemon_is_told_when_it_ends_a_leak_itself(
    busy: Site, daemon: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert busy.leaks() == 1
    out = capsys.readouterr().out
    assert "the daemon ends it in 25s" in out
    assert "not running" not in out


def test_with_a_damaged_ledger_nothing_is_ended_and_whose_machines_are_is_unknown(
    busy: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    (busy.state_dir / "ledger.sqlite").write_bytes(b"")
    assert busy.leaks("--terminate", "--yes") == 1
    out = capsys.readouterr().out
    assert "unknown" in out
    assert "nothing is ended" in out
    assert "nothing to end" in out
    assert busy.pools["here"].terminated == []


def test_without_a_ledger_every_machine_is_another_ones_and_nothing_is_made(
    busy: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    import shutil

    shutil.rmtree(busy.state_dir)
    assert busy.leaks("--terminate", "--yes") == 1
    assert busy.pools["here"].terminated == []
    assert "foreign" in capsys.readouterr().out
    assert not busy.state_dir.exists()


@pytest.mark.parametrize(
    ("trace", "told"),
    [
        ("ledger.previous.sqlite", "the ledger is missing, its copy is there: restore it before"),
        ("ledger.sqlite-wal", "the ledger is missing, its log ledger.sqlite-wal is there"),
    ],
)
def test_a_ledger_that_was_lost_makes_its_machines_unknown_and_offers_none_for_adoption(
    busy: Site, capsys: pytest.CaptureFixture[str], trace: str, told: str
) -> None:
    copy = busy.state_dir / "ledger.previous.sqlite"
    saved = copy.read_bytes()
    for path in busy.state_dir.glob("ledger.*"):
        path.unlink()
    (busy.state_dir / trace).write_bytes(saved if trace == copy.name else b"")
    assert busy.leaks("--terminate", "--yes") == 1
    out = capsys.readouterr().out
    assert told in out
    assert "elasticd adopt" not in out
    assert "foreign" not in out
    assert busy.pools["here"].terminated == []


def test_the_command_that_restores_the_ledger_is_one_line_however_narrow_the_terminal_is(
    busy: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    ledger = busy.state_dir / "ledger.sqlite"
    ledger.unlink()
    busy.leaks()
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    command = f"cp -p {busy.state_dir}/ledger.previous.sqlite {ledger}"
    assert any(line.endswith(command) for line in lines)


def test_without_a_ledger_and_without_machines_there_is_no_leak(site: Site) -> None:
    assert site.leaks() == 0


def test_a_pool_that_left_the_configuration_with_machines_is_unknown(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.write(node("node-1", pool="old", instance_id="i-1"))
    assert site.leaks() == 1
    assert (
        "pool old: what is there is not known: not configured any more" in capsys.readouterr().out
    )


def test_a_ledger_of_another_cluster_name_is_said(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.cluster = "prod"
    site.write()
    assert site.leaks() == 1
    assert "the ledger is of cluster 'prod' and the configuration says 'test'" in (
        capsys.readouterr().out
    )


def test_a_node_that_should_have_ended_long_ago_is_told_and_left_to_the_daemon(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.write(node("node-1", NodePhase.TERMINATING, instance_id="i-1"))
    site.pools["here"].add("i-1", "node-1", site.ledger_id)
    assert site.leaks("--terminate", "--yes") == 1
    assert "its node node-1 has been ending for 10m" not in capsys.readouterr().err
    assert site.pools["here"].terminated == []


def test_a_provider_that_asks_for_patience_is_asked_again_within_its_limits(site: Site) -> None:
    site.write()
    here = site.pools["here"]
    here.broken = RateLimited("slow down", 0.01)
    assert site.leaks() == 1
    here.broken = None
    assert site.leaks() == 0


def test_a_machine_of_a_renamed_pool_is_found_by_the_old_name_and_can_be_ended(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.write(events=(site.fleet("old"),))
    site.pools["old"] = FakePool()
    site.pools["old"].add("i-1", "node-1", site.ledger_id)
    assert site.leaks() == 1
    row = next(line for line in capsys.readouterr().out.splitlines() if "i-1" in line)
    assert row.split()[:3] == ["leak", "i-1", "old"]
    assert site.leaks("--terminate", "--yes") == 0
    assert site.pools["old"].machines == {}


def test_of_a_former_cluster_name_our_machines_are_found_and_nobody_elses_are_told(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.write(events=(site.fleet("here", cluster="before"),))
    before = site.pools["before/here"] = FakePool()
    before.add("i-1", "node-1", site.ledger_id)
    before.add("i-2", "node-2", "theirs")
    assert site.leaks() == 1
    out = capsys.readouterr().out
    assert "here of cluster before" in out
    assert "i-1" in out
    assert "i-2" not in out


def test_a_former_pool_of_which_only_its_directory_is_left_is_looked_for_too(site: Site) -> None:
    site.write()
    (site.state_dir / "pools" / "old").mkdir(parents=True)
    site.pools["old"] = FakePool()
    site.pools["old"].add("i-1", "node-1", site.ledger_id)
    assert site.leaks() == 1


def test_a_former_pool_whose_place_nobody_can_ask_any_more_is_said_and_no_leak_by_itself(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.write(events=(site.fleet("old", place="provider moon, region far-1"),))
    assert site.leaks() == 0
    out = capsys.readouterr().out
    assert (
        "- pool old: not configured any more; it was at provider moon, region far-1, which" in out
    )
    assert "no leaks where it could be asked (here, there): no machine listed" in out
    assert site.leaks("--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["asked"], list(told["not_asked"])) == (["here", "there"], ["old"])


def test_a_pool_that_points_elsewhere_while_the_ledger_has_machines_there_is_not_an_empty_one(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    moon = "provider fake, region moon"
    site.write(
        node("node-1", instance_id="i-1"), events=(site.fleet("here", place=moon),), places=moon
    )
    assert site.leaks() == 1
    out = capsys.readouterr().out
    assert "no leaks" not in out
    assert "pool here: what is there is not known: the configuration points elsewhere, and" in out
    assert "machines there: node-1; it was at provider fake, region moon" in out


def test_a_pool_that_was_elsewhere_long_ago_and_is_here_now_is_told_of_and_no_leak(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    moon = "provider fake, region moon"
    site.write(events=(site.fleet("here", place=moon),))
    site.write(node("node-1", instance_id="i-1"), places="provider fake")
    site.pools["here"].add("i-1", "node-1", site.ledger_id)
    assert site.leaks() == 0
    out = capsys.readouterr().out
    assert "- pool here: the configuration points elsewhere; it was at provider fake, region" in out


def test_known_machines_of_a_former_pool_that_can_be_asked_are_listed_and_nobody_ends_them(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.write(node("node-1", pool="old", instance_id="i-1"), events=(site.fleet("old"),))
    site.pools["old"] = FakePool()
    site.pools["old"].add("i-1", "node-1", site.ledger_id)
    assert site.leaks("--terminate", "--yes") == 1
    assert "the ledger has machines there that nobody ends now: node-1" in capsys.readouterr().out
    assert list(site.pools["old"].machines) == ["i-1"]


@pytest.mark.parametrize(
    ("number", "told"),
    [
        ("1-9", "this ledger has not given the id"),
        ("2-4", "this ledger has not given the id"),
        ("3-1", "is of life 3, and this ledger has come to 2"),
    ],
)
def test_what_this_ledger_has_never_given_is_told_and_never_ended(
    site: Site, capsys: pytest.CaptureFixture[str], number: str, told: str
) -> None:
    site.write(launched="1-8")
    site.write(launched="2-3")
    site.pools["here"].add("i-1", site.minted(number), site.ledger_id)
    assert site.leaks("--terminate", "--yes") == 1
    assert site.pools["here"].terminated == []
    out = " ".join(capsys.readouterr().out.split())
    assert "unknown i-1" in out
    assert told in out
    assert "it is not ended here" in out


@pytest.mark.parametrize("number", ["1-8", "1-5", "2-3"])
def test_what_this_ledger_has_launched_itself_is_no_rivals(site: Site, number: str) -> None:
    site.write(launched="1-8")
    site.write(launched="2-3")
    site.pools["here"].add("i-1", site.minted(number), site.ledger_id)
    assert site.leaks("--terminate", "--yes") == 0
    assert site.pools["here"].machines == {}


def lose_ledger(site: Site) -> None:
    for path in site.state_dir.glob("ledger.*"):
        path.unlink()


def test_while_the_daemon_runs_without_its_ledgers_file_its_own_word_is_taken_and_nothing_ended(
    busy: Site, daemon: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    status = daemon.statuses[0]
    status["ledger_id"] = busy.ledger_id
    status["nodes"][0].update(id="node-1", instance_id="i-1")
    lose_ledger(busy)
    assert busy.leaks("--all", "--terminate", "--yes") == 1
    out = capsys.readouterr().out
    verdicts = {line.split()[1]: line.split()[0] for line in out.splitlines() if " i-" in line[:16]}
    assert verdicts["i-1"] == "known"
    assert verdicts["i-2"] == "leak"
    assert verdicts["i-3"] == "foreign"
    told = "ledger.sqlite is not there although the daemon runs: put it back"
    assert told in " ".join(out.split())
    assert "0 ended, 1 not" in out
    assert busy.pools["here"].terminated == []


def test_without_the_ledgers_file_a_daemon_that_tells_nothing_makes_machines_unknown(
    busy: Site, daemon: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.statuses[0]["ledger_id"] = ""
    lose_ledger(busy)
    assert busy.leaks("--all") == 1
    out = capsys.readouterr().out
    assert "foreign" not in out
    assert "  leak " not in out
    assert out.count("  unknown ") == 3


@pytest.fixture
def stranger(busy: Site, daemon: Any) -> dict[str, Any]:
    """The pool of a daemon that lists a machine whose id its ledger has never given."""
    busy.pools["here"].add("i-9", busy.minted("7-7"), busy.ledger_id)
    pool: dict[str, Any] = daemon.statuses[0]["pools"][0]
    return pool


def row_of(out: str, instance_id: str) -> str:
    """What the table says of one machine: its verdict first."""
    return next(line for line in out.splitlines() if f" {instance_id} " in line[:20]).strip()


@pytest.mark.parametrize(
    ("observed", "left", "told"),
    [
        (False, 25.0, "the daemon ends it in 25s"),
        (True, None, "not ended, for the controller only observes"),
    ],
)
def test_an_orphan_of_the_daemon_is_a_leak_for_the_command_too_and_left_to_it(
    busy: Site,
    stranger: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    observed: bool,
    left: float | None,
    told: str,
) -> None:
    stranger.update(orphans=[{"instance_id": "i-9", "seconds_left": left}], observed=observed)
    assert busy.leaks() == 1
    row = row_of(capsys.readouterr().out, "i-9")
    assert row.startswith("leak ")
    assert "ours, and no node stands for it" in row
    assert row.endswith(told)
    assert busy.leaks("--terminate", "--yes") == 1
    assert set(busy.pools["here"].terminated) == {"i-2"}  # the ledger itself shows that one
    assert "1 ended, 1 not" in capsys.readouterr().out


def test_what_the_daemon_holds_for_a_rivals_is_one_for_the_command_too(
    busy: Site, stranger: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = f"{busy.ledger_id}+rival"
    stranger.update(foreign_machines=[{"instance_id": "i-9", "ledger_id": theirs}], orphans=[])
    assert busy.leaks() == 1
    row = row_of(capsys.readouterr().out, "i-9")
    assert row.startswith("rival ")
    assert "another elasticd acts under a copy of this state directory" in row


def test_of_an_unknown_machine_that_the_daemon_has_not_listed_yet_that_is_said(
    busy: Site, stranger: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert busy.leaks() == 1
    row = row_of(capsys.readouterr().out, "i-9")
    assert row.startswith("unknown ")
    assert row.endswith("the daemon has not listed it yet; look again")


def test_a_daemon_with_another_ledger_has_no_say_on_these_machines(
    busy: Site, daemon: Any, stranger: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.statuses[0]["ledger_id"] = "another"
    stranger.update(orphans=[{"instance_id": "i-9", "seconds_left": 25.0}])
    assert busy.leaks() == 1
    assert row_of(capsys.readouterr().out, "i-9").startswith("unknown ")


@pytest.mark.parametrize("phase", [NodePhase.BOOTING, NodePhase.READY, NodePhase.TERMINATING])
def test_an_empty_list_is_no_all_clear_for_machines_that_the_ledger_has(
    site: Site, capsys: pytest.CaptureFixture[str], phase: NodePhase
) -> None:
    site.write(node("node-1", phase, instance_id="i-1"), node("node-2", NodePhase.GONE))
    assert site.leaks() == 1
    out = capsys.readouterr().out
    assert "no leaks" not in out
    told = f"node-1 (i-1, {phase}): not in the list of pool here; whether it runs is not known"
    assert f"! {told}" in out
    assert "node-2" not in out
    assert site.leaks("--json") == 1
    assert json.loads(capsys.readouterr().out)["problems"] == [told]


def test_an_empty_list_is_no_all_clear_for_machines_that_a_daemon_without_its_file_has(
    busy: Site, daemon: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.statuses[0]["nodes"][0].update(id="node-1", instance_id="i-1")
    lose_ledger(busy)
    busy.pools["here"].machines.clear()
    assert busy.leaks() == 1
    assert "node-1 (i-1, ready): not in the list of pool here" in capsys.readouterr().out


def test_a_machine_that_came_after_the_list_or_that_the_daemon_is_ending_need_not_be_on_it(
    site: Site,
) -> None:
    site.write(
        node("node-1", NodePhase.BOOTING, ago=-60.0, instance_id="i-1"),
        node("node-2", NodePhase.TERMINATING, instance_id="i-2"),
    )
    (site.state_dir / "run").mkdir()
    with fake_daemon(site.state_dir / "run" / "admin.sock") as serving:
        serving.statuses = [{**sample_status(), "ledger_id": site.ledger_id}]
        assert site.leaks() == 0
