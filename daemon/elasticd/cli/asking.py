"""Questions to people, in a terminal."""

from __future__ import annotations

import sys

from elasticd.errors import UsageError


def must_be_askable(command: str, does: str, yes: bool) -> None:
    """Nothing that cannot be taken back is done where nobody can be asked, unless `--yes` says so.

    Raises `UsageError`.
    """
    if not yes and not sys.stdin.isatty():
        raise UsageError(
            f"`{command}` asks before it {does}, and here is no terminal to ask in; nothing was "
            "done; repeat it with --yes"
        )


def agreed(question: str) -> bool:
    """Whether the answer is yes; anything else, the end of the input too, is no."""
    try:
        reply = input(f"{question} [y/N] ")
    except EOFError:
        return False
    return reply.strip().lower() in ("y", "yes")
