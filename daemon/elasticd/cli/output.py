"""How commands print: JSON, text in the width of the terminal, colours only where one is.

What others have named or said moves no cursor: control characters do not leave here. Output that
nobody can take any more is one message, and never a traceback.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from elasticd.errors import ElasticdError
from elasticd.ops.text_table import Paint, Style

_COLOUR = re.compile("(\x1b\\[(?:0|{})m)".format("|".join(style.value for style in Style if style)))
_UNSAFE_IN_JSON = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What JSON may hold as it is and a terminal acts upon: C1 controls, and what turns text around;
and halves of pairs, which no encoding can write."""


class OutputFailed(ElasticdError):
    """What was to be printed could not be: the work is done, and nobody was told."""


def speak_any_language() -> None:
    """No character may end a command: what the locale's encoding lacks is written as an escape."""
    for stream in (sys.stdout, sys.stderr):
        if not isinstance(stream, io.TextIOWrapper):
            continue
        # Under the C locale Python reads and writes bytes that are no UTF-8 as they are.
        transparent = stream.encoding.lower() == "utf-8" and stream.errors == "surrogateescape"
        if not transparent:
            stream.reconfigure(errors="backslashreplace")


def open_closed_streams() -> None:
    """`>&-`: without them the next file that is opened, a ledger even, would get their number, and
    whatever is printed would go into it."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
    for name, number in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w", closefd=False))


def finish() -> None:
    """What is still buffered goes out now, where its failing can be told. Raises as `say` does."""
    with _told_clearly():
        sys.stdout.flush()


def abandon() -> None:
    """Nothing more is printed: Python must not try again, and complain, at its end."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def print_json(value: Any, *, one_line: bool = False) -> None:
    """One JSON value, for people who read it or, on one line, for programs that follow it."""
    text = json.dumps(value, indent=None if one_line else 2, ensure_ascii=False, allow_nan=False)
    safe = _UNSAFE_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    with _told_clearly():
        print(safe, flush=one_line)


def print_lines(lines: Iterable[str]) -> None:
    """All at once: thousands of small writes would be slow."""
    colours = paint().colours
    text = "\n".join(printable(line, colours=colours) for line in lines)
    with _told_clearly():
        print(text, flush=True)


def say(text: str) -> None:
    """A line, or several, of a command's answer."""
    print_lines(text.split("\n"))


def tell(text: str, who: str = "elasticd: ") -> None:
    """What people should know beside the answer, on stderr; that nobody reads it stops nothing."""
    told = "\n".join(map(printable, f"{who}{text}".split("\n")))
    with contextlib.suppress(OSError):
        print(told, file=sys.stderr, flush=True)


def printable(line: str, *, colours: bool = False) -> str:
    """One line without control characters; with `colours` our own may stay."""
    if line.isprintable():
        return line
    return "".join(
        part if colours and _COLOUR.fullmatch(part) else "".join(map(_shown, part))
        for part in _COLOUR.split(line)
    )


def _shown(character: str) -> str:
    """What stands for a byte of a path is left to the stream, which knows how to write it."""
    if character.isprintable() or "\udc80" <= character <= "\udcff":
        return character
    return " " if character.isspace() else "\N{REPLACEMENT CHARACTER}"


@contextlib.contextmanager
def _told_clearly() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as bad:
        raise OutputFailed(f"the output cannot be written: {bad.strerror or bad}") from bad


def width() -> int:
    """Cells in a line: the terminal's, else 80; `$COLUMNS` decides over both."""
    return max(shutil.get_terminal_size((80, 24)).columns, 40)


def paint() -> Paint:
    """Colours in a terminal, unless `$NO_COLOR` is set or it knows none."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return Paint(sys.stdout.isatty() and not plain)
