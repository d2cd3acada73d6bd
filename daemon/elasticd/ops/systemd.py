"""Tells systemd how a unit of `Type=notify` is; without systemd nothing happens."""

from __future__ import annotations

import contextlib
import os
import socket


def notify(state: str) -> None:
    """Sends one state, as `READY=1`. Nobody there to hear it harms nothing."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):  # Linux's abstract namespace
        address = f"\0{address[1:]}"
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out,
    ):
        out.sendto(state.encode(), address)
