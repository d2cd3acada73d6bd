"""Tables of plain text."""

from __future__ import annotations

import pytest

from elasticd.ops.text_table import Column, Paint, Row, Style, cells, clean, table, wrap

COLUMNS = (Column("Name", least=8), Column("Count", right=True))
PLAIN = Paint(False)


def test_a_name_that_is_too_long_has_a_line_of_its_own_and_stays_whole() -> None:
    rows = [Row(("short", "1")), Row(("a-name-that-is-very-long", "22"))]
    assert table(COLUMNS, rows, 20, PLAIN) == [
        "  Name        Count",
        "  short           1",
        "  a-name-that-is-very-long",
        "                 22",
    ]


def test_figures_stand_right_and_names_left() -> None:
    lines = table(COLUMNS, [Row(("a", "1")), Row(("bb", "100"))], 80, PLAIN)
    assert lines == ["  Name  Count", "  a         1", "  bb      100"]


def test_a_note_stands_beside_where_there_is_room_and_below_where_there_is_none() -> None:
    row = Row(("a", "1"), note="one two three four five six seven")
    assert table(COLUMNS, [row], 80, PLAIN)[1] == "  a         1  one two three four five six seven"
    assert table(COLUMNS, [row], 30, PLAIN)[1:] == [
        "  a         1",
        "      one two three four five",
        "      six seven",
    ]


def test_a_note_that_is_wrapped_beside_goes_on_under_itself() -> None:
    row = Row(("a", "1"), note="aaaa bbbb cccc dddd eeee ffff")
    lines = table(COLUMNS, [row], 40, PLAIN)
    assert lines[1:] == ["  a         1  aaaa bbbb cccc dddd eeee", "               ffff"]


def test_colours_change_no_position() -> None:
    row = Row(("a", "1"), ((0, Style.GOOD),), "note")
    painted = table(COLUMNS, [row], 80, Paint(True))[1]
    plain = painted.replace("\x1b[32m", "").replace("\x1b[2m", "").replace("\x1b[0m", "")
    assert plain == table(COLUMNS, [row], 80, PLAIN)[1]


@pytest.mark.parametrize(("text", "size"), [("abc", 3), ("通义", 4), ("é", 1), ("e\u0301", 1)])
def test_cells_are_those_of_a_terminal(text: str, size: int) -> None:
    assert cells(text) == size


def test_words_are_never_broken() -> None:
    assert wrap("a /very/long/path/to/it b", 10) == ["a", "/very/long/path/to/it", "b"]


def test_control_characters_are_shown_and_not_obeyed() -> None:
    assert clean("a\x1b[31m\tb\n\u202ec") == "a\ufffd[31m b \ufffdc"
    assert clean(None) == ""
