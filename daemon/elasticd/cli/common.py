"""What several commands share: their help, finding the configuration and the admin socket."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elasticd.cli.admin_client import AdminClient, OnlyObserves
from elasticd.cli.output import tell
from elasticd.errors import UsageError

if TYPE_CHECKING:
    from elasticd.cli.whereabouts import Whereabouts
    from elasticd.settings.load import Configuration

DEFAULT_CONFIG = "/etc/elasticd/elasticd.yaml"
CONFIG_VARIABLE = "ELASTICD_CONFIG"
Commands = Any
"""argparse's sub-command collection, which has no public name."""


def add_command(
    commands: Commands,
    name: str,
    brief: str,
    does: str,
    *,
    examples: Sequence[str],
    exits: str,
) -> argparse.ArgumentParser:
    """A command whose `--help` says what it does, shows examples, and names its exit codes."""
    shown = "\n".join(f"  {example}" for example in examples)
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=brief,
        description=does,
        epilog=f"examples:\n{shown}\n\nexit codes: {exits}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return parser


def add_config(parser: argparse.ArgumentParser) -> None:
    """`-c FILE`."""
    parser.add_argument(
        "-c",
        "--config",
        metavar="FILE",
        help=f"the configuration; else ${CONFIG_VARIABLE}, else {DEFAULT_CONFIG}",
    )


def add_daemon(parser: argparse.ArgumentParser) -> None:
    """`-c FILE` and `--socket PATH`, for commands that ask a running daemon."""
    add_config(parser)
    parser.add_argument(
        "--socket", metavar="PATH", help="the daemon's admin socket; else the configuration's"
    )


def config_path(args: argparse.Namespace) -> Path:
    """The file the user means."""
    return Path(args.config or os.environ.get(CONFIG_VARIABLE) or DEFAULT_CONFIG)


def configuration(args: argparse.Namespace, *, look_on_host: bool = False) -> Configuration:
    """The checked configuration; see `load` for `look_on_host`. Raises `UsageError`."""
    path = _existing(args)
    from elasticd.settings.load import load

    return load(path, look_on_host=look_on_host)


def _existing(args: argparse.Namespace) -> Path:
    """The file the user means. Raises `UsageError` where none is named and none is there."""
    path = config_path(args)
    if not args.config and not path.exists():
        given = f"which ${CONFIG_VARIABLE} names" if os.environ.get(CONFIG_VARIABLE) else "either"
        raise UsageError(
            f"no configuration: -c FILE is not given and there is no {path}, {given}; "
            f"name the file with -c FILE or in ${CONFIG_VARIABLE}"
        )
    return path


def places(args: argparse.Namespace) -> Whereabouts:
    """Where the daemon of the configuration is; if that cannot be read, where the daemon that
    runs with it noted to be. Raises `UsageError`."""
    from elasticd.cli.noted_place import noted_place

    try:
        return _configured_place(args)
    except UsageError as broken:
        noted = noted_place(config_path(args))
        if noted is None:
            raise
        return replace(noted, problem=str(broken))


def _configured_place(args: argparse.Namespace) -> Whereabouts:
    from elasticd.cli.whereabouts import Whereabouts, whereabouts

    found = whereabouts(_existing(args))
    if found is not None:
        return found
    checked = configuration(args)
    return Whereabouts(checked.admin_socket, checked.state_dir)


def admin_client(args: argparse.Namespace) -> AdminClient:
    """A client of the daemon the user means; with `--socket` no configuration is needed."""
    if args.socket:
        return AdminClient(Path(args.socket))
    place = places(args)
    if place.problem:
        told = place.problem.splitlines()[0]
        tell(f"the configuration is broken; asking the daemon that was started with it: {told}")
    return AdminClient(place.socket)


def must_act(status: Mapping[str, Any]) -> None:
    """Before anything is asked that the controller would have to do. Raises `OnlyObserves`."""
    if told := status.get("observe_only"):
        raise OnlyObserves(f"nothing is acted on: {told.get('text')}; {told.get('do')}")


def duration(text: str) -> float:
    """An argument like `90s`, `5m` or `2h`, in seconds."""
    from elasticd.units import parse_duration

    try:
        return parse_duration(text)
    except ValueError as bad:
        raise argparse.ArgumentTypeError(str(bad)) from bad


def named(what: str) -> Callable[[str], str]:
    """An argument that names something; nothing is no name."""

    def check(text: str) -> str:
        if not text.strip():
            raise argparse.ArgumentTypeError(f"{what} is expected; `elasticd status` shows them")
        return text

    return check


def asked_by() -> str:
    """Who asks, for the journal: the user's name where the system knows one."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}"
