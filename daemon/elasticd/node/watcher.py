"""The node watcher: one machine's `ray start`, from joining to the end.

Standard library only. It joins at the cluster agent with the single-use token, waits for the
GPUs the machine is to have, starts Ray, reports how far it is, and ends when Ray ends. Everything
it started ends with it, and what a killed earlier life left is ended first. It normally is, or is
a child of, the first process of the machine's own PID namespace.
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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from elasticd.node import leftovers, process_tree, ray_env
from elasticd.node.agent_link import AgentAway, Joined, JoinRefused, Reporter, join, nonce
from elasticd.node.gpu_count import BadMask, GpuCount, check_mask
from elasticd.node.ray_start import RayNotStarted, start_ray

NODE_ID_VARIABLE = "ELASTICD_NODE_ID"
# In the environment of everything below a watcher; the value is its folder.
MARKER = "ELASTICD_WATCHED"
TERM_GRACE = 5.0
_GPU_POLL = 1.0
_SWEEP_EVERY = 5.0
_JOIN_DELAYS = (0.5, 1.0, 2.0, 5.0)


@dataclass(frozen=True, slots=True)
class Machine:
    """What this machine was told.

    `declared_gpus` `None`: Ray counts the real ones. `gpus_late`: seconds after which declared
    ones appear, to play a late driver. `expected_gpus` `None`: any number will do.
    """

    node_id: str
    agent_url: str
    join_token: str
    folder: Path
    declared_gpus: int | None
    node_ip: str | None = None
    expected_gpus: int | None = None
    gpus_late: float = 0.0


class _Stop(BaseException):
    """SIGTERM or SIGINT arrived."""


class _Failed(Exception):
    """The machine cannot serve; the message says why."""


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
        _live(_machine(options, os.environ))
    except _Stop:
        return 0
    except _Failed as problem:
        print(f"elasticd node: {problem}", file=sys.stderr, flush=True)
        return 1
    finally:
        _ignore_stop()
        process_tree.end_descendants()
    return 1


def _machine(options: argparse.Namespace, environ: Mapping[str, str]) -> Machine:
    token = environ.get("ELASTICD_JOIN_TOKEN", "")
    if not token:
        raise _Failed("ELASTICD_JOIN_TOKEN is not set; the boot script sets it")
    # Out of reach for everything started below.
    os.environ.pop("ELASTICD_JOIN_TOKEN")
    declared = _whole_number(environ, "ELASTICD_DECLARED_GPUS")
    expected = _whole_number(environ, "ELASTICD_EXPECTED_GPUS")
    try:
        late = float(environ.get("ELASTICD_DECLARED_GPUS_LATE") or 0.0)
        check_mask(environ, declared)
    except (ValueError, BadMask) as bad:
        raise _Failed(str(bad)) from bad
    return Machine(
        node_id=options.node_id,
        agent_url=options.agent.rstrip("/"),
        join_token=token,
        folder=leftovers.node_folder(environ),
        declared_gpus=declared,
        node_ip=options.node_ip,
        expected_gpus=declared if expected is None else expected,
        gpus_late=late,
    )


def _whole_number(environ: Mapping[str, str], name: str) -> int | None:
    value = environ.get(name, "")
    if value and not value.isdecimal():
        raise _Failed(f"{name}={value!r} is not a number")
    return int(value) if value else None


def _live(machine: Machine) -> None:
    """Ends by raising only."""
    try:
        machine.folder.mkdir(parents=True, exist_ok=True)
        with _only_one(machine.folder):
            _sweep(machine.folder)
            _join_and_run(machine)
    except OSError as problem:
        raise _Failed(f"{machine.folder}: {problem}; set ELASTICD_NODE_DIR") from problem


def _join_and_run(machine: Machine) -> None:
    try:
        temp_dir = ray_env.short_temp_dir(machine.folder / "ray")
        joined = _join(machine, nonce(machine.folder))
        token_file = machine.folder / "ray.token"
        ray_env.write_token(token_file, joined.ray_token)
    except OSError as problem:
        raise _Failed(f"{machine.folder}: {problem}; set ELASTICD_NODE_DIR") from problem
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
    reporter = Reporter(
        machine.agent_url, machine.node_id, joined.report_token, machine.folder / "last-report"
    )
    try:
        _wait_for_gpus(machine, reporter)
        ray = start_ray(command, environment, reporter)
        reporter.phase("up")
        _wait(ray, machine.folder)
    except (_Failed, RayNotStarted) as problem:
        reporter.phase(f"failed: {problem}")
        raise _Failed(str(problem)) from problem
    except _Stop:
        reporter.phase("ending")
        ray_env.remove_stand_in(temp_dir, machine.folder / "ray")
        raise
    finally:
        reporter.close()


def _wait_for_gpus(machine: Machine, reporter: Reporter) -> None:
    """For ever: how long is too long is decided where a machine costs money."""
    if not machine.expected_gpus:
        return
    count = GpuCount(os.environ, machine.declared_gpus, machine.gpus_late)
    while (seen := count()).count < machine.expected_gpus:
        why = f" ({seen.why})" if seen.why else ""
        reporter.phase(f"waiting for GPUs: {seen.count} of {machine.expected_gpus}{why}")
        time.sleep(_GPU_POLL)


def _join(machine: Machine, own_nonce: str) -> Joined:
    told = ""
    tries = 0
    while True:
        try:
            return join(machine.agent_url, machine.node_id, machine.join_token, own_nonce)
        except JoinRefused as refused:
            raise _Failed(f"not let in: {refused}") from refused
        except AgentAway as away:
            if str(away) != told:
                told = str(away)
                print(f"elasticd node: agent away, asking on: {told}", flush=True)
        time.sleep(_JOIN_DELAYS[min(tries, len(_JOIN_DELAYS) - 1)])
        tries += 1


def _wait(ray: subprocess.Popen[str], folder: Path) -> None:
    """Until Ray ends. Of engines whose supervisor was killed nothing may stay on its GPU."""
    sweep_at = time.monotonic()
    try:
        while ray.poll() is None:
            process_tree.reap_orphans(ray.pid)
            if time.monotonic() >= sweep_at:
                process_tree.kill(leftovers.orphans(folder))
                sweep_at = time.monotonic() + _SWEEP_EVERY
            with contextlib.suppress(subprocess.TimeoutExpired):
                ray.wait(1.0)
    except _Stop:
        _ignore_stop()
        ray.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            ray.wait(TERM_GRACE)
        raise
    raise _Failed(f"Ray ended by itself (exit {ray.returncode})")


@contextlib.contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    """Whoever has the lock knows that earlier watchers of this machine are over."""
    with (folder / "watcher.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _Failed(f"a watcher already runs in {folder}; stop it first") from None
        yield


def _sweep(folder: Path) -> None:
    ended = process_tree.sweep(MARKER, lambda value: value == str(folder))
    ended += leftovers.end_orphans(folder)
    if ended:
        print(f"elasticd node: ended {ended} processes of an earlier life", flush=True)


def _raise_stop(_signal: int, _frame: FrameType | None) -> None:
    raise _Stop


def _ignore_stop() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


if __name__ == "__main__":
    sys.exit(main())
