"""How many files and connections this process may have open, and who may use how many of them.

Usual systems start every process with 1024 and allow far more to those that ask. Standard library
only: also the watcher of a rented machine asks.
"""

from __future__ import annotations

import contextlib
import resource

_RESERVE = 64
"""Descriptors for everything that is no client: the event loop, libraries, logs, the table on
disk, the admin socket, connections to replicas that idle for a moment."""

_LEAST = 16
"""Connections that are taken however small the limit is."""


def raise_descriptors() -> None:
    """Takes all that the system allows. Children inherit it. Where it is refused all stays."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def descriptors() -> int:
    """How many may be open now."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else 1 << 20


def relayed_connections() -> int:
    """Clients at once where each may need a connection of its own to a replica."""
    return max(_LEAST, (descriptors() - _RESERVE) // 2)


def side_connections() -> int:
    """Clients at once of one listener beside the real work of a process."""
    return max(_LEAST, descriptors() // 8)
