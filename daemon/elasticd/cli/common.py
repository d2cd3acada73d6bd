"""What several commands share: finding the configuration and the admin socket."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elasticd.cli.admin_client import AdminClient

if TYPE_CHECKING:
    from elasticd.settings.load import Configuration

DEFAULT_CONFIG = "/etc/elasticd/elasticd.yaml"
Commands = Any
"""argparse's sub-command collection, which has no public name."""


def add_config(parser: argparse.ArgumentParser) -> None:
    """`-c FILE`."""
    parser.add_argument("-c", "--config", metavar="FILE", help="the configuration")


def add_daemon(parser: argparse.ArgumentParser) -> None:
    """`-c FILE` and `--socket PATH`, for commands that ask a running daemon."""
    add_config(parser)
    parser.add_argument("--socket", metavar="PATH", help="the daemon's admin socket")


def config_path(args: argparse.Namespace) -> Path:
    """The file the user means."""
    return Path(args.config or os.environ.get("ELASTICD_CONFIG") or DEFAULT_CONFIG)


def configuration(args: argparse.Namespace, *, look_on_host: bool = False) -> Configuration:
    """The checked configuration; see `load` for `look_on_host`."""
    from elasticd.settings.load import load

    return load(config_path(args), look_on_host=look_on_host)


def admin_client(args: argparse.Namespace) -> AdminClient:
    """A client of the daemon the user means; with `--socket` no configuration is needed."""
    if args.socket:
        return AdminClient(Path(args.socket))
    return AdminClient(configuration(args).admin_socket)
