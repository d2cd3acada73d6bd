"""Local machines are real: real namespaces, real processes, real kills."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from elasticd.provider import InstanceNotFound, InstanceState, Rejected
from tests.providers.harness import (
    Pool,
    end,
    needs_namespaces,
    offering,
    processes_with,
    until,
    until_listed,
)

pytestmark = needs_namespaces

_STUBBORN = """\
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:            # a grandchild of the bootstrap script, in a session of its own
    os.setsid()
    if os.fork() > 0:
        os._exit(0)           # and now an orphan: a proper daemon
open("up", "a").write("x")
time.sleep(987654)
"""


def _running(listed: list[object]) -> bool:
    return [getattr(i, "state", None) for i in listed] == [InstanceState.RUNNING]


def sleeper_of(node_dir: str) -> set[int]:
    """The end of that machine's bootstrap script; other tests have theirs."""
    return set(processes_with("sleep\x00987654")) & set(processes_with(node_dir))


async def test_a_launch_asked_twice_gives_one_machine(pool: Pool) -> None:
    provider = pool.provider()
    request = await pool.request()
    first = await provider.launch(request)
    second = await provider.launch(request)
    assert first.instance_id == second.instance_id
    (listed,) = await until_listed(provider, _running, "the machine runs")
    assert (listed.node_id, listed.ledger_id) == ("node-1", "ledger1")
    assert listed.offering == offering()
    assert listed.address == "127.0.0.1"
    assert len(processes_with(f"{pool.machine_dir(first)}")) >= 2  # unshare and the init, once each
    node_dir = json.loads((pool.machine_dir(first) / "machine.json").read_bytes())["node_dir"]
    await until(lambda: sleeper_of(node_dir), "the bootstrap script runs")


async def test_concurrent_launches_for_one_node_give_one_machine(pool: Pool) -> None:
    one, other = pool.provider(), pool.provider()
    request = await pool.request()
    launched = await asyncio.gather(
        one.launch(request), other.launch(request), one.launch(request), other.launch(request)
    )
    assert len({instance.instance_id for instance in launched}) == 1
    assert len(await one.instances()) == 1


async def test_a_kill_takes_daemons_that_ignore_sigterm_and_left_the_session(pool: Pool) -> None:
    provider = pool.provider()
    script = f"cd $ELASTICD_NODE_DIR && {sys.executable} -c '{_STUBBORN}'"
    instance = await provider.launch(await pool.request(bootstrap=script))
    record = json.loads((pool.machine_dir(instance) / "machine.json").read_bytes())
    node_dir = Path(record["node_dir"])
    await until(lambda: (node_dir / "up").exists() and (node_dir / "up").stat().st_size == 2, "up")
    assert processes_with(str(node_dir))
    await end(provider, instance.instance_id)
    assert processes_with(str(node_dir)) == []
    assert not node_dir.exists()
    assert not pool.machine_dir(instance).exists()


async def test_terminating_an_unknown_machine_says_not_found(pool: Pool) -> None:
    with pytest.raises(InstanceNotFound):
        await pool.provider().terminate("local-0000")


_LAUNCHER = """\
import asyncio, sys
from pathlib import Path
from tests.providers.harness import Pool

async def main():
    pool = Pool.__new__(Pool)
    pool.state_dir = Path(sys.argv[1])
    print((await pool.provider().launch(await pool.request())).instance_id, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_a_machine_survives_its_controller_and_a_restart_finds_it(pool: Pool) -> None:
    root = Path(__file__).parents[2]
    controller = subprocess.Popen(
        [sys.executable, "-c", _LAUNCHER, str(pool.state_dir)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(root)},
        process_group=0,
    )
    with controller:
        assert controller.stdout is not None
        launched = await asyncio.to_thread(controller.stdout.readline)
        os.killpg(controller.pid, signal.SIGKILL)
    again = pool.provider()
    (found,) = await until_listed(again, _running, "the machine goes on running")
    assert found.instance_id == launched.strip()
    repeated = await again.launch(await pool.request())
    assert repeated.instance_id == found.instance_id


async def test_a_controller_that_died_half_way_through_a_launch_leaves_nothing(pool: Pool) -> None:
    provider = pool.provider()
    launched = await provider.launch(await pool.request())
    intent = (pool.machine_dir(launched) / "machine.json").read_bytes()
    await end(provider, launched.instance_id)
    (pool.state_dir / "gone" / launched.instance_id / "machine.json").unlink()

    root = pool.machine_dir(launched)  # as a crash just after the intent leaves it
    root.mkdir(mode=0o700)
    (root / "machine.json").write_bytes(intent)
    assert await provider.instances() == []
    root.mkdir(mode=0o700)
    (root / "machine.json").write_bytes(intent)
    again = await provider.launch(await pool.request())
    assert again.instance_id == launched.instance_id
    assert len(await until_listed(provider, _running, "the repeated launch runs")) == 1


async def test_a_machine_that_dies_by_itself_vanishes_and_leaves_its_log(pool: Pool) -> None:
    provider = pool.provider()
    request = await pool.request(bootstrap="echo no such luck >&2; exit 3\n")
    instance = await provider.launch(request)
    await until_listed(provider, lambda listed: not listed, "it vanishes from the list")
    log = (pool.state_dir / "gone" / instance.instance_id / "boot.log").read_text()
    assert "no such luck" in log
    assert "exit status 3" in log


async def test_a_late_repeat_of_a_launch_does_not_bring_a_dead_machine_back(pool: Pool) -> None:
    provider = pool.provider()
    request = await pool.request()
    first = await provider.launch(request)
    await end(provider, first.instance_id)
    repeated = await provider.launch(request)
    assert (repeated.instance_id, repeated.state) == (first.instance_id, InstanceState.STOPPING)
    assert await provider.instances() == []


async def test_a_machine_whose_state_was_deleted_ends_by_itself_and_leaves_nothing(
    pool: Pool,
) -> None:
    instance = await pool.provider().launch(await pool.request())
    root = pool.machine_dir(instance)
    node_dir = json.loads((root / "machine.json").read_bytes())["node_dir"]
    await until(lambda: sleeper_of(node_dir), "the bootstrap script runs")
    shutil.rmtree(root)
    await until(lambda: not processes_with(node_dir), "everything in it has ended")
    await until(lambda: not Path(node_dir).exists(), "its directory is removed")


async def test_machines_of_another_ledger_are_listed_as_such(pool: Pool) -> None:
    ours, theirs = pool.provider(), pool.provider(ledger="ledger2")
    await ours.launch(await pool.request())
    await theirs.launch(await pool.request(ledger="ledger2"))
    assert {i.ledger_id for i in await ours.instances()} == {"ledger1", "ledger2"}


async def test_a_recycled_process_id_is_never_killed(pool: Pool) -> None:
    provider = pool.provider()
    instance = await provider.launch(await pool.request())
    await end(provider, instance.instance_id)
    bystander = subprocess.Popen(["sleep", "987654"])
    try:
        root = pool.machine_dir(instance)
        root.mkdir(mode=0o700)
        grave = pool.state_dir / "gone" / instance.instance_id / "machine.json"
        (root / "machine.json").write_bytes(grave.read_bytes())
        stat_line = Path(f"/proc/{bystander.pid}/stat").read_text().split()
        stat_line[21] = str(int(stat_line[21]) - 1)  # the same pid, an earlier process
        (root / "outside").write_text(" ".join(stat_line))
        with pytest.raises(InstanceNotFound):
            await provider.terminate(instance.instance_id)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


async def test_a_machine_sees_its_own_processes_and_shared_memory_only(pool: Pool) -> None:
    provider = pool.provider()
    script = (
        "cd $ELASTICD_NODE_DIR\n"
        f"{sys.executable} -c \"import os; print(len([p for p in os.listdir('/proc') "
        'if p.isdigit()]))" > seen.tmp\n'
        "ls -A /dev/shm | wc -l >> seen.tmp; mv seen.tmp seen\nexec sleep 987654\n"
    )
    instance = await provider.launch(await pool.request(bootstrap=script))
    node_dir = Path(
        json.loads((pool.machine_dir(instance) / "machine.json").read_bytes())["node_dir"]
    )
    await until((node_dir / "seen").exists, "the script has looked around")
    processes, segments = (node_dir / "seen").read_text().split()
    assert int(processes) <= 3  # init, the script's shell, python
    assert segments == "0"


async def test_the_environment_holds_what_a_node_needs_and_no_secret(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret-of-ours")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-of-ours")
    monkeypatch.setenv("HTTPS_PROXY", "http://me:secret-of-ours@127.0.0.1:1/")
    monkeypatch.setenv("VLLM_NO_USAGE_STATS", "1")
    provider = pool.provider(gpus=2)
    request = await pool.request(bootstrap="cd $ELASTICD_NODE_DIR; env > e; mv e env; sleep 9999\n")
    two_gpus = (await provider.offerings())[0]
    request = type(request)(**{f: getattr(request, f) for f in ("node_id", "cluster", "ledger_id")},
                            offerings=(two_gpus,), bootstrap=request.bootstrap)  # fmt: skip
    instance = await provider.launch(request)
    node_dir = Path(
        json.loads((pool.machine_dir(instance) / "machine.json").read_bytes())["node_dir"]
    )
    await until((node_dir / "env").exists, "the script has written its environment")
    lines = (node_dir / "env").read_text().splitlines()
    seen = dict(line.split("=", 1) for line in lines)
    assert "secret-of-ours" not in str(seen)
    assert seen["ELASTICD_DECLARED_GPUS"] == "2"
    assert seen["ELASTICD_NODE_DIR"] == str(node_dir)
    assert seen["VLLM_NO_USAGE_STATS"] == "1"
    assert seen["PATH"].startswith(str(Path(sys.executable).parent))
    assert seen["HOME"].startswith(str(node_dir))
    assert len(str(node_dir)) <= 40
    assert stat.S_IMODE(node_dir.stat().st_mode) == 0o700


async def test_a_host_without_namespaces_is_one_clear_message(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake = tmp_path / "bin" / "unshare"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\necho unshare: Operation not permitted >&2; exit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    monkeypatch.setattr("sys.executable", f"{fake.parent}/python")  # PATH begins beside it
    with pytest.raises(Rejected, match=r"must allow new PID .* Operation not permitted"):
        await pool.provider().launch(await pool.request())
    assert pool.leftovers() == []
