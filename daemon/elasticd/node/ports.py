"""A free port for an engine, claimed against every other engine on this host."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path

from elasticd.node.port_holder import port_holder


def claim_port(host: str, low: int, high: int) -> tuple[int, int]:
    """A port of `low..high` on which nobody listens, and the descriptor that claims it.

    The claim holds as long as a process has the descriptor open, so two starters never choose the
    same port between looking and listening. Raises `OSError` if the range is full.
    """
    candidates = list(range(low, high + 1))
    random.shuffle(candidates)
    for port in candidates:
        claim = _claim(port)
        if claim is None:
            continue
        if _is_free(host, port):
            return port, claim
        os.close(claim)
        forget_claim(port)
    raise OSError(
        f"no free port on {host} in {low}..{high} ({low}: {port_holder(low)}); widen the range of "
        f"engine ports"
    )


def _claim(port: int) -> int | None:
    while True:
        descriptor = os.open(_path(port), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        if os.fstat(descriptor).st_nlink:
            return descriptor
        os.close(descriptor)  # forgotten between the two calls: the next file counts


def forget_claim(port: int) -> None:
    """Removes the claim's file, if nobody holds the claim any more."""
    descriptor = _claim(port)
    if descriptor is not None:
        _path(port).unlink(missing_ok=True)
        os.close(descriptor)


def _path(port: int) -> Path:
    return Path(tempfile.gettempdir()) / f"elasticd-{os.getuid()}-port-{port}.lock"


def _is_free(host: str, port: int) -> bool:
    with contextlib.closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as refused:
            if refused.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise OSError(f"engines cannot listen on {host}: {refused.strerror}") from refused
    return True
