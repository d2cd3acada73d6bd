"""Who has a port, by name: people cannot act on \"address already in use\"."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from elasticd.node.port_holder import port_holder

LISTENER = """
import socket, sys
with socket.create_server(("127.0.0.1", 0)) as server:
    print(server.getsockname()[1], flush=True)
    sys.stdin.read()
"""


def test_a_listener_is_named_with_pid_and_command() -> None:
    with subprocess.Popen([sys.executable, "-c", LISTENER, "redis"], stdin=-1, stdout=-1) as other:
        assert other.stdout is not None
        port = int(other.stdout.readline())
        holder = port_holder(port)
        assert holder.startswith(f"pid {other.pid} (")
        assert "import socket" in holder


def test_a_program_in_a_deep_folder_is_named_all_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "a-rather-deep-folder" / "of-a-virtual-environment" / "with-programs"
    folder.mkdir(parents=True)
    program = folder / "redis-server"
    program.symlink_to(sys.executable)
    with subprocess.Popen([program, "-c", LISTENER], stdin=-1, stdout=-1) as other:
        assert other.stdout is not None
        holder = port_holder(int(other.stdout.readline()))
        assert holder.startswith(f"pid {other.pid} (redis-server -c ")


def test_listeners_of_both_address_families_are_found() -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
        assert port_holder(server.getsockname()[1]).startswith(f"pid {os.getpid()} (")


def test_a_port_without_a_listener_to_be_seen_is_said_to_be_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert "gone" in port_holder(port)
