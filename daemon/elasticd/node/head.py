"""The managed Ray head: one process that is the head's whole life.

Keeps the cluster's state in Ray's embedded store under the state directory, so that nodes,
replicas and names outlive the head. Whatever the head starts ends with this process; what a
killed earlier life left is ended at the next start, found by a marker in its environment.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from elasticd.cluster_secret import ClusterSecret
from elasticd.errors import ElasticdError
from elasticd.node import process_tree, ray_env
from elasticd.node.port_holder import port_holder

MARKER = "ELASTICD_HEAD"
TERM_GRACE = 5.0


@dataclass(frozen=True, slots=True)
class HeadConfig:
    """Where the head keeps its state and where it listens."""

    state_dir: Path
    port: int = 6379
    node_ip: str | None = None

    @property
    def folder(self) -> Path:
        return self.state_dir / "ray"

    @property
    def token_file(self) -> Path:
        return self.folder / "token"


class _Stop(BaseException):
    """SIGTERM or SIGINT arrived."""


def main(argv: Sequence[str] | None = None) -> int:
    """`elasticd head` and `python -m elasticd.node.head`; returns the exit code."""
    parser = argparse.ArgumentParser(prog="elasticd head", description="The managed Ray head.")
    parser.add_argument("--state-dir", type=Path, required=True)
    parser.add_argument("--port", type=int, default=6379)
    parser.add_argument("--node-ip", default=None)
    options = parser.parse_args(argv)
    try:
        return run_head(HeadConfig(options.state_dir.resolve(), options.port, options.node_ip))
    except ElasticdError as problem:
        print(f"elasticd head: {problem}", file=sys.stderr, flush=True)
        return problem.exit_code


def run_head(config: HeadConfig) -> int:
    """Runs the head until told to end (0) or until it ends by itself (1). Main thread only."""
    os.umask(0o077)
    config.folder.mkdir(parents=True, exist_ok=True)
    with _only_one(config):
        _sweep(config)
        _check_port(config.port)
        process_tree.become_subreaper()
        temp_dir = ray_env.short_temp_dir(config.folder / "tmp")
        # Ray takes this file for a living head and refuses to start.
        (temp_dir / "ray_current_cluster").unlink(missing_ok=True)
        secret = ClusterSecret.load_or_create(config.state_dir)
        ray_env.write_token(config.token_file, secret.ray_token)
        return _live(config, temp_dir)


def _live(config: HeadConfig, temp_dir: Path) -> int:
    signal.signal(signal.SIGTERM, _raise_stop)
    signal.signal(signal.SIGINT, _raise_stop)
    ray: subprocess.Popen[bytes] | None = None
    try:
        ray = subprocess.Popen(
            ray_env.head_command(config.port, temp_dir, config.node_ip),
            env={
                **ray_env.without_rays_own(os.environ),
                **ray_env.head_env(config.token_file, config.folder / "store"),
                MARKER: str(config.state_dir),
            },
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=process_tree.die_with_parent(),
        )
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = ray.wait(1.0)
                break
            process_tree.reap_orphans(ray.pid)
    except _Stop:
        _ignore_stop()
        if ray is not None:
            _ask_to_end(ray)
        process_tree.end_descendants()
        ray_env.remove_stand_in(temp_dir, config.folder / "tmp")
        return 0
    finally:
        _ignore_stop()
        process_tree.end_descendants()
    print(
        f"elasticd head: Ray's head ended by itself (exit {code}); its logs are in "
        f"{temp_dir}/session_latest/logs",
        file=sys.stderr,
        flush=True,
    )
    return 1


def _ask_to_end(ray: subprocess.Popen[bytes]) -> None:
    ray.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        ray.wait(TERM_GRACE)


def _raise_stop(_signal: int, _frame: FrameType | None) -> None:
    raise _Stop


def _ignore_stop() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextlib.contextmanager
def _only_one(config: HeadConfig) -> Iterator[None]:
    """Holds the state directory: whoever has the lock knows that earlier lives are over."""
    with (config.folder / "head.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ElasticdError(
                f"a head already runs for {config.state_dir}; stop it first"
            ) from None
        yield


def _sweep(config: HeadConfig) -> None:
    try:
        ended = process_tree.sweep(MARKER, lambda value: value == str(config.state_dir))
    except TimeoutError as stuck:
        raise ElasticdError(str(stuck)) from stuck
    if ended:
        print(f"elasticd head: ended {ended} processes of an earlier life", flush=True)


def _check_port(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
            probe.listen(1)
        except OSError as busy:
            raise ElasticdError(
                f"port {port} is not free ({busy.strerror}): {port_holder(port)} has it; set "
                f"another `ray.port`, or end what listens there"
            ) from busy


if __name__ == "__main__":
    sys.exit(main())
