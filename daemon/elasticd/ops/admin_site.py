"""Opens the admin API's sockets. A living daemon's socket is never taken away from it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import stat
from collections.abc import AsyncIterator
from pathlib import Path

from aiohttp import web

from elasticd.errors import UsageError
from elasticd.ops import limits
from elasticd.ops.admin_http import AdminConnection
from elasticd.ops.door import Door

SOCKET_MODE = 0o660
_LONGEST_PATH = 107
_BACKLOG = 128


class AddressTaken(UsageError):
    """Someone else listens there."""


@contextlib.asynccontextmanager
async def serve_unix(app: web.Application, path: Path) -> AsyncIterator[None]:
    """Serves on a unix socket until the block ends. Raises `AddressTaken` and `UsageError`."""
    sock = bind_unix(path)
    identity = _inode(path)
    try:
        async with _serving(app, sock, "admin.socket"):
            yield
    finally:
        sock.close()
        if _inode(path) == identity:  # else another one has its own there by now
            path.unlink()  # noqa: ASYNC240 - one system call on a local file


@contextlib.asynccontextmanager
async def serve_tcp(app: web.Application, host: str, port: int) -> AsyncIterator[int]:
    """Serves on TCP until the block ends; gives the port, also for port 0."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.create_server((host, port), family=family)
    except OSError as failed:
        raise AddressTaken(
            f"admin.listen {host}:{port}: {failed.strerror}; free it or choose another"
        ) from failed
    with contextlib.closing(sock):
        async with _serving(app, sock, "admin.listen"):
            yield sock.getsockname()[1]


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None


def check_place(path: Path) -> None:
    """Raises `UsageError` for a place where no socket of ours can be, and `AddressTaken`."""
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise UsageError(
            f"admin.socket {path}: longer than {_LONGEST_PATH} bytes, the system's limit for "
            "sockets; choose a shorter path"
        )
    try:
        kind = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    if not stat.S_ISSOCK(kind):
        raise UsageError(f"admin.socket {path}: a file that is no socket is there; remove it")
    if _answers(path):
        raise AddressTaken(f"admin.socket {path}: a running elasticd listens there; stop it first")


def bind_unix(path: Path) -> socket.socket:
    """A bound socket of mode 0660; what a dead process left there is replaced."""
    check_place(path)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.unlink(missing_ok=True)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    before = os.umask(0o777 & ~SOCKET_MODE)  # from its first moment on, not a little later
    try:
        sock.bind(os.fspath(path))
    except OSError as failed:
        sock.close()
        raise AddressTaken(f"admin.socket {path}: {failed.strerror}") from failed
    finally:
        os.umask(before)
    return sock


def _answers(path: Path) -> bool:
    """Only a refused connection proves that nobody listens; a full queue is a sign of life."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        result = probe.connect_ex(os.fspath(path))
    return result not in {errno.ECONNREFUSED, errno.ENOENT}


@contextlib.asynccontextmanager
async def _serving(app: web.Application, sock: socket.socket, name: str) -> AsyncIterator[None]:
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    server, loop = runner.server, asyncio.get_running_loop()
    assert server is not None, "it is set up"
    door = Door(
        name,
        [sock],
        lambda: AdminConnection(server, loop=loop, access_log=None),
        limits.side_connections(),
    )
    try:
        door.open(_BACKLOG)
        yield
    finally:
        door.close()
        await runner.cleanup()
