"""The node watcher: one machine's `ray start`, from joining to the end.

Standard library only. It joins at the cluster agent with the single-use token, waits for the
GPUs the machine is to have, starts Ray, and reports how far it is, and what the machine's cloud
says of its end. When Ray ends by itself it sweeps what is left and joins again, some times.
Everything it started ends with it, and what a killed earlier life left is ended first. It normally
is, or is a child of, the first process of the machine's own PID namespace.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType

from elasticd.node import leftovers, process_tree, ray_env, versions
from elasticd.node.agent_link import UP, AgentAway, Joined, JoinRefused, Reporter, join, nonce
from elasticd.node.gpu_count import GpuCount
from elasticd.node.machine import Failed, Machine, told_machine
from elasticd.node.notice_watch import watch_for
from elasticd.node.ray_start import start_ray
from elasticd.node.ray_watch import RayWatch

NODE_ID_VARIABLE = "ELASTICD_NODE_ID"
# In the environment of everything below a watcher; the value is its folder.
MARKER = "ELASTICD_WATCHED"
TERM_GRACE = 5.0
# How often in a row a machine joins again whose Ray did not last; one that lasted `SETTLED` seconds
# begins a new row.
JOINS_AGAIN = 3
SETTLED = 600.0
_GPU_POLL = 1.0
_JOIN_DELAYS = (0.5, 1.0, 2.0, 5.0)


class _Stop(BaseException):
    """SIGTERM or SIGINT arrived."""


def main(argv: Sequence[str] | None = None) -> int:
    """`elasticd node` and `python -m elasticd.node.watcher`; returns the exit code."""
    parser = argparse.ArgumentParser(prog="elasticd node", description="One machine's watcher.")
    parser.add_argument("--node-id", required=True)
    parser.add_argument("--agent", required=True, help="URL of the cluster agent")
    parser.add_argument("--node-ip", default=None, help="this machine's address inside the cluster")
    options = parser.parse_args(argv)
    os.umask(0o077)
    process_tree.become_subreaper()
    signal.signal(signal.SIGTERM, _raise_stop)
    signal.signal(signal.SIGINT, _raise_stop)
    try:
        _live(told_machine(options.node_id, options.agent, options.node_ip, os.environ))
    except _Stop:
        return 0
    except Failed as problem:
        print(f"elasticd node: {problem}", file=sys.stderr, flush=True)
        return 1
    finally:
        _ignore_stop()
        process_tree.end_descendants()
    return 1


def _live(machine: Machine) -> None:
    """Ends by raising only."""
    try:
        machine.folder.mkdir(parents=True, exist_ok=True)
        with _only_one(machine.folder):
            _sweep(machine.folder, _say)
            _join_and_run(machine)
    except OSError as problem:
        raise Failed(f"{machine.folder}: {problem}; set ELASTICD_NODE_DIR") from problem


def _join_and_run(machine: Machine) -> None:
    found = versions.installed()
    reporter = Reporter(machine.agent_url, machine.node_id, machine.folder / "last-report", found)
    reporter.say(f"machine {machine.node_id}: {versions.in_words(found)}")
    notices = watch_for(
        machine.notices, machine.metadata_url, machine.node_id, reporter.notices, reporter.say
    )
    notices.start()
    try:
        _live_in_ray(machine, reporter, found)
    except (Failed, OSError) as problem:
        reporter.phase(f"failed: {problem}")
        raise
    except _Stop:
        reporter.phase("ending")
        raise
    finally:
        notices.stop()
        reporter.close()


def _live_in_ray(machine: Machine, reporter: Reporter, found: Mapping[str, str]) -> None:
    """One life of Ray after the other: what a head that has lost its memory does not know any more
    ends, and joins it again. Ends by raising only."""
    in_a_row = 0
    while True:
        temp_dir = ray_env.short_temp_dir(machine.folder / "ray")
        try:
            began, ending = _one_life(machine, reporter, found, temp_dir)
        except _Stop:
            ray_env.remove_stand_in(temp_dir, machine.folder / "ray")
            raise
        in_a_row = 1 if time.monotonic() - began >= SETTLED else in_a_row + 1
        if in_a_row > JOINS_AGAIN:
            raise Failed(f"{ending}, {in_a_row} times in a row")
        reporter.say(f"{ending}; joining again")
        reporter.phase(f"joining again: {ending}")
        process_tree.end_descendants()
        _sweep(machine.folder, reporter.say)


def _one_life(
    machine: Machine, reporter: Reporter, found: Mapping[str, str], temp_dir: Path
) -> tuple[float, str]:
    """From joining to Ray's end: when it was up, and how it ended."""
    joined = _join(machine, nonce(machine.folder), found, reporter)
    reporter.open(joined.report_token)
    if joined.refused:
        reporter.say(f"not joined: {joined.refused}")
        raise Failed(joined.refused)
    token_file = machine.folder / "ray.token"
    ray_env.write_token(token_file, joined.ray_token)
    environment = {
        **ray_env.without_rays_own(os.environ),
        **ray_env.attached_env(token_file, joined.ray_env),
        NODE_ID_VARIABLE: machine.node_id,
        "ELASTICD_NODE_DIR": str(machine.folder),
        MARKER: str(machine.folder),
    }
    command = ray_env.node_command(
        joined.ray_address, temp_dir, machine.node_id, machine.declared_gpus, machine.node_ip
    )
    _wait_for_gpus(machine, reporter)
    ray = start_ray(command, environment, reporter)
    watch = RayWatch(ray)
    reporter.phase(UP)
    began = time.monotonic()
    try:
        return began, watch.wait_until_over(machine.folder)
    except _Stop:
        _ignore_stop()
        ray.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            ray.wait(TERM_GRACE)
        raise


def _wait_for_gpus(machine: Machine, reporter: Reporter) -> None:
    """For ever: how long is too long is decided where a machine costs money."""
    if not machine.expected_gpus:
        return
    count = GpuCount(os.environ, machine.declared_gpus, machine.gpus_late)
    while (seen := count()).count < machine.expected_gpus:
        why = f" ({seen.why})" if seen.why else ""
        reporter.phase(f"waiting for GPUs: {seen.count} of {machine.expected_gpus}{why}")
        time.sleep(_GPU_POLL)


def _join(machine: Machine, own_nonce: str, found: Mapping[str, str], reporter: Reporter) -> Joined:
    """Asks until the agent has answered: it may be away, and so may the head."""
    told = ""
    tries = 0
    while True:
        try:
            return join(machine.agent_url, machine.node_id, machine.join_token, own_nonce, found)
        except JoinRefused as refused:
            raise Failed(f"not let in: {refused}") from refused
        except AgentAway as away:
            if str(away) != told:
                told = str(away)
                reporter.say(f"agent away, asking on: {told}")
        time.sleep(_JOIN_DELAYS[min(tries, len(_JOIN_DELAYS) - 1)])
        tries += 1


@contextlib.contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    """Whoever has the lock knows that earlier watchers of this machine are over."""
    with (folder / "watcher.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Failed(f"a watcher already runs in {folder}; stop it first") from None
        yield


def _sweep(folder: Path, say: Callable[[str], None]) -> None:
    ended = process_tree.sweep(MARKER, lambda value: value == str(folder))
    ended += leftovers.end_orphans(folder)
    if ended:
        say(f"ended {ended} processes of an earlier life")


def _say(text: str) -> None:
    print(f"elasticd node: {text}", flush=True)


def _raise_stop(_signal: int, _frame: FrameType | None) -> None:
    raise _Stop


def _ignore_stop() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


if __name__ == "__main__":
    sys.exit(main())
