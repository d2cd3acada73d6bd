"""The program `elasticd`. Its commands are imported where a Ctrl-C is answered in order already."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence

INTERRUPTED = 130
"""The exit code after Ctrl-C, as shells have it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    try:
        from elasticd.cli.output import open_closed_streams, speak_any_language

        open_closed_streams()
        speak_any_language()
        from elasticd.cli.program import run_command

        code = run_command(list(sys.argv[1:] if argv is None else argv))
    except KeyboardInterrupt:
        code = INTERRUPTED
    if argv is None:
        # All is said and done: a Ctrl-C that comes only now finds nothing left to stop.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return code
