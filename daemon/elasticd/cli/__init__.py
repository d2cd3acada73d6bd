"""The program `elasticd`: one module per command, nothing heavy imported before it is needed."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence

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
from elasticd.cli.output import speak_any_language
from elasticd.errors import ElasticdError
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


def build_parser() -> tuple[argparse.ArgumentParser, frozenset[str]]:
    """The whole command line, and the names of all commands."""
    parser = argparse.ArgumentParser(
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


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    speak_any_language()
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["node"]:
        # The watcher runs on rented machines with the standard library alone and has its own
        # command line; it is not passed through ours.
        return processes.node(arguments[1:])
    parser, known = build_parser()
    word = arguments[0] if arguments else ""
    if word and not word.startswith("-") and word not in known:
        hint = did_you_mean(word, known) or "; `elasticd --help` lists them"
        parser.error(f"no command {word!r}{hint}")
    args = parser.parse_args(arguments)
    call: Callable[[argparse.Namespace], int] = args.call
    try:
        code = call(args)
    except ElasticdError as bad:
        print(f"elasticd: {bad}", file=sys.stderr)
        return bad.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # `elasticd status | head`: the reader has seen enough, and Python must not complain of it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code
