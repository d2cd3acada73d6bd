"""One YAML file as plain data, with the line of every path.

Keys that stand twice are told instead of the last one silently winning, numbers are plain decimal
(YAML 1.1 reads `22:22` as 1342 and `017` as 15), and the file is UTF-8 whatever the locale says.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from yaml.composer import ComposerError

from elasticd.errors import UsageError
from elasticd.settings.file_text import read_text

Place = tuple[str | int, ...]
"""Where a value stands: keys and list positions from the top."""

_TAG = "tag:yaml.org,2002:"
_PLAIN = frozenset(
    f"{_TAG}{kind}" for kind in ("str", "int", "float", "bool", "null", "seq", "map")
)
_ONLY_TEXT = frozenset(f"{_TAG}{kind}" for kind in ("timestamp", "merge", "value"))
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(r"-?([0-9]+\.[0-9]*([eE][-+]?[0-9]+)?|\.[0-9]+)")
_HIDDEN = re.compile(r"(token|secret|passw(or)?d|key|hash|credential)s?$", re.IGNORECASE)
_NO_TEXT = re.compile("[\0\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong at one place of the file. `line` counts from 1; `None`: not known."""

    place: Place
    message: str
    line: int | None = None

    @property
    def path(self) -> str:
        """The place as people write it: `models[0].scaling.max_replicas`."""
        text = ""
        for part in self.place:
            text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
        return text or "(the file)"

    def where(self, path: Path) -> str:
        """As one line: file, line, place, and what is wrong."""
        line = f":{self.line}" if self.line else ""
        return f"{path}{line}: {self.path}: {self.message}"


@dataclass(frozen=True, slots=True)
class Document:
    """The data of a file, where each place stands, and what was wrong with the YAML itself."""

    data: Any
    lines: Mapping[Place, int]
    problems: tuple[Problem, ...]


def holds_secret(place: Place) -> bool:
    """Whether the key's name says that what stands there is not to be repeated."""
    return any(isinstance(part, str) and _HIDDEN.search(part) for part in place[-2:])


class _Loader(yaml.SafeLoader):
    """YAML's safe loader; it constructs plain data only, and a tree: no value stands in itself."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event: Any = self.get_event()  # type: ignore[no-untyped-call]
            text = "aliases (*NAME) are not read here; write the value out, or put it in quotes"
            raise ComposerError(None, None, text, event.start_mark)
        node: yaml.Node | None = super().compose_node(parent, index)
        return node


def read_document(path: Path) -> Document:
    """Reads a YAML file. Raises `UsageError` for one that cannot be read as YAML at all."""
    text = read_text(path)
    try:
        return _parse(text)
    except yaml.reader.ReaderError as bad:
        line = text.count("\n", 0, bad.position) + 1
        what = f"the character U+{ord(text[bad.position]):04X} cannot stand in it; remove it"
        raise UsageError(f"{path}:{line}: not YAML: {what}") from bad
    except yaml.MarkedYAMLError as bad:
        mark = bad.problem_mark or bad.context_mark
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        raise UsageError(f"{where}: not YAML: {bad.problem or bad.context}") from bad
    except (yaml.YAMLError, ValueError) as bad:
        raise UsageError(f"{path}: not YAML: {bad}") from bad
    except RecursionError:
        raise UsageError(f"{path}: lists and mappings are nested too deeply to be meant") from None


def _parse(text: str) -> Document:
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        lines: dict[Place, int] = {}
        problems: list[Problem] = []
        if node is not None:
            _survey(node, (), lines, problems)
        data = None if node is None else loader.construct_document(node)
    finally:
        loader.dispose()
    return Document(data, lines, tuple(problems))


def _survey(node: yaml.Node, at: Place, lines: dict[Place, int], out: list[Problem]) -> None:
    """Notes the line of everything under `node`, keys that stand twice, and odd numbers."""
    lines.setdefault(at, node.start_mark.line + 1)
    if node.tag not in _PLAIN | _ONLY_TEXT:
        text = "tags (!NAME) are not read here; remove it, or put the value in quotes"
        raise ComposerError(None, None, text, node.start_mark)
    if isinstance(node, yaml.ScalarNode):
        _survey_scalar(node, at, out)
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _survey(item, (*at, index), lines, out)
    if isinstance(node, yaml.MappingNode):
        first: dict[str, int] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                out.append(Problem(at, "a key must be plain text", line))
                continue
            _refuse_no_text(key)
            key.tag = f"{_TAG}str"  # `on:` is a key, not a truth
            place = (*at, key.value)
            if key.value in first:
                text = f"stands twice, first in line {first[key.value]}; keep one of them"
                out.append(Problem(place, text, line))
            first.setdefault(key.value, line)
            lines[place] = line
            _survey(value, place, lines, out)


def _survey_scalar(node: yaml.ScalarNode, at: Place, out: list[Problem]) -> None:
    """Turns whatever YAML 1.1 would convert in a way that surprises people into text."""
    _refuse_no_text(node)
    text = node.value
    if node.tag in _ONLY_TEXT:
        node.tag = f"{_TAG}str"
    if _is_odd_number(node.tag, text):
        node.tag = f"{_TAG}str"
        given = "what stands here" if holds_secret(at) else repr(text[:40])
        message = (
            f"{given} is no plain decimal number (digits 0-9, no leading zero, at most 18 "
            "digits); write it so, or put it in quotes if it is text"
        )
        out.append(Problem(at, message, node.start_mark.line + 1))


def _is_odd_number(tag: str, text: str) -> bool:
    if tag == f"{_TAG}int":
        return not _INTEGER.fullmatch(text)
    if tag == f"{_TAG}float":
        return not _FLOAT.fullmatch(text) or not math.isfinite(float(text))
    return False


def _refuse_no_text(node: yaml.ScalarNode) -> None:
    """NUL and halves of surrogate pairs can be escaped in YAML, but no system call takes them."""
    if found := _NO_TEXT.search(node.value):
        text = f"the character U+{ord(found[0]):04X} cannot stand in it; remove it"
        raise ComposerError(None, None, text, node.start_mark)
