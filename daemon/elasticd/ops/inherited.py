"""Listening sockets that outlive the process that accepts on them.

Whoever starts a server opens its sockets and hands them down: systemd by its protocol for socket
activation (`LISTEN_FDS`, sd_listen_fds(3)), our own supervisor by `ELASTICD_LISTEN_FDS`. While no
server runs, clients wait in the backlog instead of being refused.
"""

from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping, Sequence

VARIABLE = "ELASTICD_LISTEN_FDS"
"""Descriptors, separated by commas."""

_FIRST = 3
"""systemd's first descriptor."""

BACKLOG = 4096
"""Clients that may wait to be accepted."""


def bound(host: str, port: int) -> list[socket.socket]:
    """A listening socket for each address that the host's name stands for. Raises `OSError`."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, _, _, _, address in dict.fromkeys(found):
            sockets.append(socket.create_server(address[:2], family=family, backlog=BACKLOG))
    except OSError:
        for sock in sockets:
            sock.close()
        raise
    return sockets


def handing_down(sockets: Sequence[socket.socket]) -> dict[str, str]:
    """The environment of the process that gets them, which must get their descriptors, too."""
    return {VARIABLE: ",".join(str(sock.fileno()) for sock in sockets)} if sockets else {}


def inherited(environ: MutableMapping[str, str] = os.environ) -> list[socket.socket]:
    """The sockets that were handed down to this process; empty: none. Asked again there are none,
    and no child of ours takes them for its own."""
    ours = environ.pop(VARIABLE, "")
    told = [int(word) for word in ours.split(",") if word.isdecimal()]
    count, pid = environ.pop("LISTEN_FDS", ""), environ.pop("LISTEN_PID", "")
    if not told and pid == str(os.getpid()) and count.isdecimal():
        told = list(range(_FIRST, _FIRST + int(count)))
    sockets = [socket.socket(fileno=fd) for fd in told]
    for sock in sockets:
        sock.set_inheritable(False)
        sock.setblocking(False)
    return sockets
