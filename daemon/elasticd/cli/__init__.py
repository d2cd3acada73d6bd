"""The program `elasticd`: one module per command, nothing heavy imported before it is needed."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence

from elasticd import __version__
from elasticd.cli import check, down, drill, processes, run, status
from elasticd.errors import ElasticdError

EXIT_CODES = """\
exit codes: 0 fine · 1 the answer is "not fine" · 2 wrong usage or configuration ·
3 daemon not reachable
configuration: -c FILE, else $ELASTICD_CONFIG, else /etc/elasticd/elasticd.yaml"""


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = argparse.ArgumentParser(
        prog="elasticd",
        description="Serves large language models on GPU machines that come and go.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"elasticd {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for module in (run, status, down, drill, check, processes):
        module.add_to(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["node"]:
        # The watcher runs on rented machines with the standard library alone and has its own
        # command line; it is not passed through ours.
        return processes.node(arguments[1:])
    args = build_parser().parse_args(arguments)
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
