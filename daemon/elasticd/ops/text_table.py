"""Tables of plain text: names, numbers and ids stay whole, only prose is wrapped, between words.

Written by hand because thousands of rows must be there at once, in a terminal of any width, in a
file, and in scripts that cut them apart.
"""

from __future__ import annotations

import enum
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

_INDENT = 2
_LEAST_NOTE = 24
"""Columns below which a note stands under its row and not beside it."""

_NOTE_INDENT = 6


class Style(enum.StrEnum):
    """What a piece of text says by its colour."""

    PLAIN = ""
    BOLD = "1"
    GOOD = "32"
    BUSY = "33"
    BAD = "31"
    QUIET = "2"


@dataclass(frozen=True, slots=True)
class Paint:
    """Colours for a terminal, or none."""

    colours: bool

    def __call__(self, text: str, style: Style) -> str:
        if not self.colours or style is Style.PLAIN or not text:
            return text
        return f"\x1b[{style.value}m{text}\x1b[0m"


@dataclass(frozen=True, slots=True)
class Column:
    """`right`: figures. `least` above 0: a name; the column may be narrowed to that many cells,
    and a name that is longer then has a line of its own."""

    title: str
    right: bool = False
    least: int = 0


@dataclass(frozen=True, slots=True)
class Row:
    """One row: its cells, the style of some of them by position, and prose about it."""

    cells: tuple[str, ...]
    styles: tuple[tuple[int, Style], ...] = ()
    note: str = ""


def table(columns: Sequence[Column], rows: Sequence[Row], width: int, paint: Paint) -> list[str]:
    """The lines of a table that is at most `width` cells wide as far as names allow."""
    widths, gap = _widths(columns, rows, width)
    taken = _INDENT + sum(widths) + gap * len(widths)
    room = width - taken
    titles = Row(tuple(column.title for column in columns))
    lines = [paint(_row_lines(titles, columns, widths, gap, paint)[-1].rstrip(), Style.BOLD)]
    for row in rows:
        *whole, last = _row_lines(row, columns, widths, gap, paint)
        lines += whole
        if row.note and room >= _LEAST_NOTE:
            first, *rest = wrap(row.note, room)
            lines.append(last + paint(first, Style.QUIET))
            lines += [" " * taken + paint(text, Style.QUIET) for text in rest]
            continue
        lines.append(last.rstrip())
        if row.note:
            prose = wrap(row.note, width - _NOTE_INDENT)
            lines += [" " * _NOTE_INDENT + paint(text, Style.QUIET) for text in prose]
    return lines


def _widths(columns: Sequence[Column], rows: Sequence[Row], width: int) -> tuple[list[int], int]:
    """Cells for each column, and between two: names give way where the whole does not fit."""
    widths = [cells(column.title) for column in columns]
    for row in rows:
        for index, text in enumerate(row.cells):
            size = len(text) if text.isascii() else cells(text)
            if size > widths[index]:
                widths[index] = size
    over = _INDENT + sum(widths) + 2 * len(widths) - width
    gap = 2 if over <= 0 else 1
    over -= len(widths) if gap == 1 else 0
    names = sorted(
        (i for i, column in enumerate(columns) if column.least), key=lambda i: -widths[i]
    )
    for index in names:
        if over <= 0:
            break
        narrow = max(columns[index].least, widths[index] - over)
        if narrow < widths[index]:
            over -= widths[index] - narrow
            widths[index] = narrow
    return widths, gap


def _row_lines(
    row: Row, columns: Sequence[Column], widths: Sequence[int], gap: int, paint: Paint
) -> list[str]:
    """The lines of one row; the last one is filled up to where a note may stand."""
    styles = dict(row.styles)
    lines: list[str] = []
    line, used, start = " " * _INDENT, _INDENT, _INDENT
    for index, (column, size, text) in enumerate(zip(columns, widths, row.cells, strict=True)):
        if used > start:  # the cell before was longer than its column
            lines.append(line.rstrip())
            line, used = " " * start, start
        own = len(text) if text.isascii() else cells(text)
        shown = paint(text, styles[index]) if index in styles else text
        padding = " " * (size - own)
        line += f"{padding}{shown}" if column.right else f"{shown}{padding}"
        line += " " * gap
        used += max(size, own) + gap
        start += size + gap
    return [*lines, line]


def cells(text: str) -> int:
    """Cells that a text takes in a terminal: two for a Chinese character, none for an accent."""
    if text.isascii():
        return len(text)
    return sum(_cells_of(character) for character in text)


def _cells_of(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def wrap(text: str, width: int) -> list[str]:
    """Lines of whole words; a word longer than `width` has a line of its own."""
    lines: list[str] = []
    line, used = "", 0
    for word in text.split():
        size = cells(word)
        if line and used + 1 + size > width:
            lines.append(line)
            line, used = "", 0
        line, used = (f"{line} {word}", used + 1 + size) if line else (word, size)
    return [*lines, line]


def clean(text: object) -> str:
    """One line without control characters: what engines and providers say moves no cursor."""
    line = " ".join(str(text if text is not None else "").split())
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line)


def bullet(mark: str, text: str, width: int) -> Iterator[str]:
    """A sentence behind a mark, wrapped under itself."""
    room = max(width - len(mark) - 1, 1)
    for number, line in enumerate(wrap(text, room)):
        yield f"{mark if number == 0 else ' ' * len(mark)} {line}"


def passage(mark: str, text: str, width: int) -> Iterator[str]:
    """Text of several lines behind a mark. One that begins with a blank is a command to copy: it
    is never wrapped."""
    for number, line in enumerate(line for line in text.splitlines() if line.strip()):
        if line.startswith(" "):
            yield f"{' ' * len(mark)} {clean(line)}"
        else:
            yield from bullet(mark if number == 0 else " " * len(mark), clean(line), width)


def painted(lines: Iterable[str], style: Style, paint: Paint) -> list[str]:
    """All lines in one style."""
    return [paint(line, style) for line in lines]
