"""How commands print: JSON, text in the width of the terminal, colours only where one is."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
from collections.abc import Iterable
from typing import Any

from elasticd.ops.text_table import Paint


def speak_any_language() -> None:
    """No character may end a command: what the locale's encoding lacks is written as an escape."""
    for stream in (sys.stdout, sys.stderr):
        if not isinstance(stream, io.TextIOWrapper):
            continue
        # Under the C locale Python reads and writes bytes that are no UTF-8 as they are.
        transparent = stream.encoding.lower() == "utf-8" and stream.errors == "surrogateescape"
        if not transparent:
            stream.reconfigure(errors="backslashreplace")


def print_json(value: Any, *, one_line: bool = False) -> None:
    """One JSON value, for people who read it or, on one line, for programs that follow it."""
    indent = None if one_line else 2
    print(json.dumps(value, indent=indent, ensure_ascii=False), flush=one_line)


def print_lines(lines: Iterable[str]) -> None:
    """All at once: thousands of small writes would be slow."""
    print("\n".join(lines), flush=True)


def width() -> int:
    """Cells in a line: the terminal's, else 80; `$COLUMNS` decides over both."""
    return max(shutil.get_terminal_size((80, 24)).columns, 40)


def paint() -> Paint:
    """Colours in a terminal, unless `$NO_COLOR` is set or it knows none."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return Paint(sys.stdout.isatty() and not plain)
