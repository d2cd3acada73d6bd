"""The command line: one module per command, nothing heavy imported before it is needed."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import NoReturn

from elasticd import __version__
from elasticd.cli import (
    adopt,
    check,
    doctor,
    down,
    drain,
    drill,
    events,
    keygen,
    leaks,
    plan,
    processes,
    reload,
    replay,
    run,
    scale,
    status,
)
from elasticd.cli.output import OutputFailed, abandon, finish, print_json, tell
from elasticd.errors import ElasticdError, UsageError
from elasticd.nearest import did_you_mean

EXIT_CODES = """\
exit codes: 0 fine · 1 the answer is "not fine" · 2 wrong usage or configuration ·
3 daemon not reachable
configuration: -c FILE, else $ELASTICD_CONFIG, else /etc/elasticd/elasticd.yaml"""

_COMMANDS = (
    run,
    status,
    events,
    keygen,
    drain,
    scale,
    reload,
    down,
    leaks,
    adopt,
    drill,
    check,
    plan,
    doctor,
    replay,
    processes,
)
"""In the order of the help text."""


class _Parser(argparse.ArgumentParser):
    """Says what is wrong with a command line also to programs that read JSON."""

    as_json = False

    def error(self, message: str) -> NoReturn:
        """Exit 2."""
        if _Parser.as_json:
            print_json({"error": message, "exit_code": UsageError.exit_code})
        super().error(message)


def build_parser() -> tuple[argparse.ArgumentParser, frozenset[str]]:
    """The whole command line, and the names of all commands."""
    parser = _Parser(
        prog="elasticd",
        description="Serves large language models on GPU machines that come and go.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"elasticd {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for module in _COMMANDS:
        module.add_to(commands)
    for command in commands.choices.values():
        if command.epilog is None:
            command.epilog = EXIT_CODES
            command.formatter_class = argparse.RawDescriptionHelpFormatter
    return parser, frozenset(commands.choices)


def run_command(arguments: Sequence[str]) -> int:
    """Runs one command and returns its exit code."""
    if arguments[:1] == ["node"]:
        # The watcher runs on rented machines with the standard library alone and has its own
        # command line; it is not passed through ours.
        return processes.node(arguments[1:])
    as_json = "--json" in arguments
    try:
        code = _run(arguments, as_json)
        finish()
    except OutputFailed as bad:
        tell(str(bad))
        abandon()
        return bad.exit_code
    except BrokenPipeError:
        # `elasticd status | head`: the reader has seen enough, and Python must not complain of it.
        abandon()
        return 0
    return code


def _run(arguments: Sequence[str], as_json: bool) -> int:
    args: argparse.Namespace | None = None
    try:
        args = _parsed(arguments, as_json)
        call: Callable[[argparse.Namespace], int] = args.call
        return call(args)
    except OutputFailed:
        raise
    except ElasticdError as bad:
        if getattr(args, "json", False):
            one_line = bool(getattr(args, "lines", False) or getattr(args, "watch", False))
            print_json({"error": str(bad), "exit_code": bad.exit_code}, one_line=one_line)
        tell(str(bad))
        return bad.exit_code


def _parsed(arguments: Sequence[str], as_json: bool) -> argparse.Namespace:
    """Exits with 2 where they cannot be meant."""
    _Parser.as_json = as_json
    parser, known = build_parser()
    word = arguments[0] if arguments else ""
    if word and not word.startswith("-") and word not in known:
        hint = did_you_mean(word, known) or "; `elasticd --help` lists them"
        parser.error(f"no command {word!r}{hint}")
    try:
        return parser.parse_args(arguments)
    except SystemExit:
        finish()  # of the help, too
        raise
