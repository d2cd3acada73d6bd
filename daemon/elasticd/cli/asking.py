"""Questions to people, in a terminal."""

from __future__ import annotations


def agreed(question: str) -> bool:
    """Whether the answer is yes; anything else, the end of the input too, is no."""
    try:
        reply = input(f"{question} [y/N] ")
    except EOFError:
        return False
    return reply.strip().lower() in ("y", "yes")
