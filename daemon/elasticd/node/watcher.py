"""The node watcher: one machine's `ray start`, from joining to the end.

Standard library only. It joins at the cluster agent with the single-use token, starts Ray,
reports how far it is, and ends when Ray ends. Everything it started ends with it. It normally
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
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from elasticd.node import process_tree, ray_env
from elasticd.node.agent_link import AgentAway, Joined, JoinRefused, Reporter, join, nonce

NODE_ID_VARIABLE = "ELASTICD_NODE_ID"
START_TRIES = 3
START_TIMEOUT = 120.0
TERM_GRACE = 5.0
_UP = "Ray runtime started"
_JOIN_DELAYS = (0.5, 1.0, 2.0, 5.0)


@dataclass(frozen=True, slots=True)
class Machine:
    """What this machine was told. `declared_gpus` `None`: Ray counts the real ones."""

    node_id: str
    agent_url: str
    join_token: str
    folder: Path
    declared_gpus: int | None
    node_ip: str | None = None


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
    declared = environ.get("ELASTICD_DECLARED_GPUS", "")
    if declared and not declared.isdigit():
        raise _Failed(f"ELASTICD_DECLARED_GPUS={declared!r} is not a number")
    folder = Path(environ.get("ELASTICD_NODE_DIR") or Path.home() / ".elasticd-node")
    return Machine(
        node_id=options.node_id,
        agent_url=options.agent.rstrip("/"),
        join_token=token,
        folder=folder.absolute(),
        declared_gpus=int(declared) if declared else None,
        node_ip=options.node_ip,
    )


def _live(machine: Machine) -> None:
    """Ends by raising only."""
    try:
        machine.folder.mkdir(parents=True, exist_ok=True)
        temp_dir = ray_env.short_temp_dir(machine.folder / "ray")
        joined = _join(machine, nonce(machine.folder))
        token_file = machine.folder / "ray.token"
        ray_env.write_token(token_file, joined.ray_token)
    except OSError as problem:
        raise _Failed(f"{machine.folder}: {problem}; set ELASTICD_NODE_DIR") from problem
    environment = {
        **os.environ,
        **ray_env.attached_env(token_file, joined.ray_env),
        NODE_ID_VARIABLE: machine.node_id,
    }
    command = ray_env.node_command(
        joined.ray_address, temp_dir, machine.node_id, machine.declared_gpus, machine.node_ip
    )
    reporter = Reporter(machine.agent_url, machine.node_id, joined.report_token)
    try:
        ray = _start_ray(command, environment, reporter)
        reporter.phase("up")
        _wait(ray)
    except _Failed as problem:
        reporter.phase(f"failed: {problem}")
        raise
    except _Stop:
        reporter.phase("ending")
        raise
    finally:
        reporter.close()


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


def _start_ray(
    command: Sequence[str], environment: Mapping[str, str], reporter: Reporter
) -> subprocess.Popen[str]:
    """Starts Ray, one node at a time on this host: started together, some time out."""
    for attempt in range(1, START_TRIES + 1):
        reporter.phase("waiting for another node's start")
        with _host_wide_turn():
            reporter.phase("starting ray")
            ray = _RayStart(command, environment, reporter)
            problem = ray.wait_until_up()
        if problem is None:
            return ray.process
        print(f"elasticd node: ray start, try {attempt}: {problem}", flush=True)
        process_tree.end_descendants()
    last = next((line for line in reversed(reporter.tail) if line.strip()), "no output")
    raise _Failed(f"ray did not start in {START_TRIES} tries: {problem}; last line: {last}")


class _RayStart:
    """One `ray start --block`, its output read by a thread."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], reporter: Reporter
    ) -> None:
        self._settled = threading.Event()
        self._up = False
        self._reporter = reporter
        self.process = subprocess.Popen(
            list(command),
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            preexec_fn=process_tree.die_with_parent(),
        )
        threading.Thread(target=self._read, name="ray-output", daemon=True).start()

    def wait_until_up(self) -> str | None:
        """`None`, or what went wrong."""
        if not self._settled.wait(START_TIMEOUT):
            return f"not up after {START_TIMEOUT:.0f} s"
        return None if self._up else f"ended with exit {self.process.wait()}"

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            print(line, end="", flush=True)
            self._reporter.line(line.rstrip("\n"))
            if _UP in line:
                self._up = True
                self._settled.set()
        self._settled.set()


def _wait(ray: subprocess.Popen[str]) -> None:
    try:
        while ray.poll() is None:
            process_tree.reap_orphans(ray.pid)
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
def _host_wide_turn() -> Iterator[None]:
    """One holder at a time among this user's watchers that share a file system."""
    path = Path(tempfile.gettempdir()) / f"elasticd-{os.getuid()}-ray-start.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _raise_stop(_signal: int, _frame: FrameType | None) -> None:
    raise _Stop


def _ignore_stop() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


if __name__ == "__main__":
    sys.exit(main())
