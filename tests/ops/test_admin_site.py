"""The admin socket is private, replaces the dead and never the living."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest
from aiohttp import web

from elasticd.errors import UsageError
from elasticd.ops.admin_site import AddressTaken, bind_unix, serve_tcp, serve_unix


async def test_the_socket_is_for_owner_and_group_and_goes_with_its_server(tmp_path: Path) -> None:
    path = tmp_path / "run" / "admin.sock"
    before = os.umask(0)
    os.umask(before)
    async with serve_unix(web.Application(), path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert not path.exists()
    assert os.umask(before) == before


async def test_what_a_dead_process_left_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    bind_unix(path).close()  # the file stays, nobody listens
    async with serve_unix(web.Application(), path):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))


async def test_the_socket_of_a_living_process_is_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    async with serve_unix(web.Application(), path):
        with pytest.raises(AddressTaken, match="a running elasticd listens there"):
            bind_unix(path)
        assert path.exists()


async def test_a_socket_that_is_anothers_by_now_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    async with serve_unix(web.Application(), path):
        path.rename(tmp_path / "old.sock")  # keeps the inode from being used again
        other = bind_unix(path)
    assert path.exists()
    other.close()


def test_a_file_that_is_no_socket_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    path.write_text("somebody's notes")
    with pytest.raises(UsageError, match="no socket"):
        bind_unix(path)
    assert path.read_text() == "somebody's notes"


def test_a_path_that_is_too_long_is_told_as_such(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="longer than 107 bytes"):
        bind_unix(tmp_path / ("x" * 120))


async def test_a_port_that_is_taken_is_told_as_such() -> None:
    async with serve_tcp(web.Application(), "127.0.0.1", 0) as port:
        with pytest.raises(AddressTaken, match=f"127.0.0.1:{port}: Address already in use"):
            async with serve_tcp(web.Application(), "127.0.0.1", port):
                pass
