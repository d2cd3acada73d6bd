"""Sockets that outlive the process that accepts on them."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from elasticd.ops.inherited import VARIABLE, bound, handing_down, inherited
from elasticd.ops.supervisor import BackOff, Child, ChildSpec

TAKES_ONE = """
import os
from elasticd.ops.inherited import inherited
[sock] = inherited()
sock.setblocking(True)
client, _ = sock.accept()
client.sendall(str(os.getpid()).encode())
"""


def test_a_child_accepts_on_what_it_was_handed_and_who_came_before_it_waits() -> None:
    [sock] = bound("127.0.0.1", 0)
    with (
        sock,
        socket.create_connection(sock.getsockname()) as client,
        subprocess.Popen(
            [sys.executable, "-c", TAKES_ONE],
            env={**os.environ, **handing_down([sock])},
            pass_fds=[sock.fileno()],
        ) as child,
    ):
        client.settimeout(20)
        assert client.recv(100) == str(child.pid).encode()


def test_systemds_sockets_are_taken_by_the_process_they_are_for() -> None:
    others = {"LISTEN_FDS": "1", "LISTEN_PID": "1"}
    assert inherited(others) == []
    script = (
        "import os, socket, sys\n"
        "sock = socket.create_server(('127.0.0.1', 0)); os.dup2(sock.fileno(), 3)\n"
        "os.environ |= {'LISTEN_FDS': '1', 'LISTEN_PID': str(os.getpid())}\n"
        "from elasticd.ops.inherited import inherited\n"
        "[mine] = inherited()\n"
        "assert mine.getsockname() == sock.getsockname()\n"
        "assert not mine.get_inheritable() and inherited() == []\n"
        "assert 'LISTEN_FDS' not in os.environ\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=30)


def test_nothing_is_handed_down_where_there_is_nothing() -> None:
    assert handing_down([]) == {}
    assert inherited({VARIABLE: ""}) == []


async def test_clients_are_not_refused_while_a_child_is_started_again(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = free.getsockname()
    argv = (sys.executable, "-c", TAKES_ONE)
    spec = ChildSpec("gateway", argv, listen=(address[0], address[1]))
    child = Child(spec, tmp_path, lambda ended: None, BackOff(first=0.01))
    keeping = asyncio.create_task(child.keep())
    try:
        served = {await asyncio.to_thread(_asked, address) for _ in range(3)}
    finally:
        await child.end(asyncio.Event())
        await keeping
    assert len(served) == 3, "each was served by a process of its own"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)


def _asked(address: tuple[str, int]) -> bytes:
    deadline = time.monotonic() + 20
    while True:
        try:
            with socket.create_connection(address, timeout=20) as client:
                return client.recv(100)
        except ConnectionRefusedError:  # only before the first child
            assert time.monotonic() < deadline
