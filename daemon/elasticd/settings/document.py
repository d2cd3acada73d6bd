"""One YAML file as plain data, with the line of every path.

Keys that stand twice are told instead of the last one silently winning, and the file is UTF-8
whatever the locale says.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from elasticd.errors import UsageError

Place = tuple[str | int, ...]
"""Where a value stands: keys and list positions from the top."""


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


@dataclass(frozen=True, slots=True)
class Document:
    """The data of a file, where each place stands, and what was wrong with the YAML itself."""

    data: Any
    lines: Mapping[Place, int]
    problems: tuple[Problem, ...]

    def line_of(self, place: Place) -> int | None:
        """The line of a place, else that of the nearest mapping around it."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place)


class _Loader(yaml.SafeLoader):
    """YAML's safe loader; it constructs plain data only."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        self.flatten_mapping(node)
        return super().construct_mapping(node, deep=deep)


def read_document(path: Path) -> Document:
    """Reads a YAML file. Raises `UsageError` for one that cannot be read as YAML at all."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file; give the configuration with -c FILE") from None
    except UnicodeDecodeError as bad:
        raise UsageError(f"{path}: not UTF-8 (byte {bad.start}); save it as UTF-8") from bad
    except OSError as bad:
        raise UsageError(f"{path}: cannot be read: {bad.strerror}") from bad
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        lines: dict[Place, int] = {}
        problems: list[Problem] = []
        if node is not None:
            _survey(node, (), lines, problems)
        data = None if node is None else loader.construct_document(node)
    except yaml.MarkedYAMLError as bad:
        mark = bad.problem_mark or bad.context_mark
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        raise UsageError(f"{where}: not YAML: {bad.problem or bad.context}") from bad
    except (yaml.YAMLError, ValueError) as bad:
        raise UsageError(f"{path}: not YAML: {bad}") from bad
    finally:
        loader.dispose()
    return Document(data, lines, tuple(problems))


def _survey(node: yaml.Node, at: Place, lines: dict[Place, int], out: list[Problem]) -> None:
    """Notes the line of everything under `node`, and keys that stand twice."""
    lines.setdefault(at, node.start_mark.line + 1)
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
            place = (*at, key.value)
            if key.value in first:
                text = f"stands twice, first in line {first[key.value]}; keep one of them"
                out.append(Problem(place, text, line))
            first.setdefault(key.value, line)
            lines[place] = line
            _survey(value, place, lines, out)
