"""A port that someone else has: told by name before anything starts, and nobody is harmed."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from elasticd.cli import main

LISTENER = """
import socket, sys
with socket.create_server(("127.0.0.1", 0)) as server:
    print(server.getsockname()[1], flush=True)
    sys.stdin.read()
"""

TEXT = """
cluster: test
state_dir: state
gateway: {{listen: "127.0.0.1:{gateway}"}}
admin: {{listen: "127.0.0.1:{admin}"}}
agent: {{listen: "127.0.0.1:{agent}"}}
ray: {{port: {ray}}}
node_pools: [{{name: here, provider: local, max_nodes: 1}}]
models: [{{name: m, source: "file:weights", engine: {{command: ["serve", "{{port}}"]}}}}]
"""


class Someone:
    """A program of somebody else that listens on a port."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", LISTENER, "somebodys-redis"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())


@pytest.fixture
def others() -> Iterator[list[Someone]]:
    there = [Someone() for _ in range(4)]
    yield there
    for someone in there:
        someone.process.kill()
        someone.process.communicate()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as held:
        return int(held.getsockname()[1])


def configured(folder: Path, **ports: int) -> str:
    weights = folder / "weights"
    weights.mkdir()
    (weights / "config.json").write_text("{}")
    free = {key: free_port() for key in ("gateway", "admin", "agent", "ray")}
    config = folder / "elasticd.yaml"
    config.write_text(TEXT.format(**{**free, **ports}))
    return str(config)


def test_every_port_that_is_taken_is_told_with_its_key_and_who_has_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], others: list[Someone]
) -> None:
    keys = ("gateway", "admin", "agent", "ray")
    config = configured(
        tmp_path, **{key: someone.port for key, someone in zip(keys, others, strict=True)}
    )
    assert main(["run", "-c", config]) == 2
    error = capsys.readouterr().err
    named = ("gateway.listen", "admin.listen", "agent.listen", "ray.port")
    for key, someone in zip(named, others, strict=True):
        assert f":{someone.port} (key {key}) is taken by pid {someone.process.pid} (" in error
    assert "nothing was started" in error
    assert all(someone.process.poll() is None for someone in others)
    assert list((tmp_path / "state" / "run").glob("*.pid")) == []
    assert list((tmp_path / "state" / "logs").iterdir()) == []


def test_only_what_is_taken_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], others: list[Someone]
) -> None:
    config = configured(tmp_path, admin=others[0].port)
    assert main(["run", "-c", config]) == 2
    error = capsys.readouterr().err
    assert "admin.listen" in error
    assert "gateway.listen" not in error
