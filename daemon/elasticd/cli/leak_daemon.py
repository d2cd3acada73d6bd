"""What a running daemon says while `elasticd leaks` looks."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elasticd.cli.admin_client import AdminClient
from elasticd.cli.leak_report import Daemon
from elasticd.errors import ElasticdError, NotReachable
from elasticd.settings.configuration import Configuration

_PATIENCE = 3.0
"""Seconds."""


@dataclass(frozen=True, slots=True)
class Told:
    """Whether a daemon is there, and its status if it answers."""

    daemon: Daemon
    status: Mapping[str, Any] = field(default_factory=dict)


def ask_daemon(args: argparse.Namespace, config: Configuration) -> Told:
    """Never raises: a daemon that does not answer is one of the answers."""
    socket = Path(args.socket) if args.socket else config.admin_socket
    try:
        status = AdminClient(socket, _PATIENCE).status()
    except ElasticdError as silent:
        nobody = isinstance(silent.__cause__, FileNotFoundError | ConnectionRefusedError)
        return Told(Daemon(str(silent), not (nobody and isinstance(silent, NotReachable)), {}))
    ends = {
        str(orphan["instance_id"]): float(orphan["seconds_left"])
        for pool in status.get("pools", ())
        for orphan in pool.get("orphans") or ()
        if isinstance(orphan, dict) and orphan.get("seconds_left") is not None
    }
    return Told(Daemon("", True, ends), status)
