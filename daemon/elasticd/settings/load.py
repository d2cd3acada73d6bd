"""From a file to a checked configuration: every problem at once, or a value that can be used.

One mistake is one problem, and no problem hides another: what is wrong is put aside, and the rest
is judged as if it were right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from elasticd.errors import UsageError
from elasticd.provider import ProviderPlugin
from elasticd.settings.advice import advice
from elasticd.settings.configuration import Configuration
from elasticd.settings.document import Document, Place, Problem, read_document
from elasticd.settings.draft import Draft, Finding
from elasticd.settings.host_check import missing_on_host
from elasticd.settings.places import impossible_places
from elasticd.settings.pool_options import PoolOptions
from elasticd.settings.rules import broken_rules
from elasticd.settings.settle import settle, touches
from elasticd.settings.tidy import Tidied, tidy

__all__ = [
    "BadConfiguration",
    "Configuration",
    "Problem",
    "Providers",
    "installed_providers",
    "load",
]

Providers = Mapping[str, Callable[[], ProviderPlugin]]
"""Known providers by name; each is imported only when a pool uses it."""


class BadConfiguration(UsageError):
    """A configuration with problems; the message has one line for each."""

    def __init__(self, path: Path, problems: tuple[Problem, ...]) -> None:
        self.path = path
        self.problems = problems
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        lines = [f"{path}: {count} in the configuration"]
        lines += [f"  {problem.where(path)}" for problem in problems]
        super().__init__("\n".join(lines))


def installed_providers() -> Providers:
    """Every provider that is installed beside elasticd, ours and others'."""
    return {entry.name: entry.load for entry in entry_points(group="elasticd.providers")}


def load(
    path: Path, providers: Providers | None = None, *, look_on_host: bool = True
) -> Configuration:
    """Reads and checks a file. Raises `UsageError`, with every problem there is.

    `look_on_host`: also require what the models need on this host. Commands that look after what
    already runs leave it out: a directory that vanished must not keep machines from being given
    back.
    """
    document = read_document(path)
    pools = PoolOptions(installed_providers() if providers is None else providers)
    tidied = tidy(document, pools.keys_of)
    problems, draft, broken = _judge(document, tidied, pools, path.absolute())
    if draft is not None:
        findings = [*broken_rules(draft), *impossible_places(draft, look_on_host=look_on_host)]
        if look_on_host:
            findings += missing_on_host(draft)
        problems += _sound(findings, broken)
    if problems or draft is None:
        raise BadConfiguration(path, _located(_once(problems), tidied.lines))
    warnings = _located(_sound(advice(draft, look_on_host=look_on_host), broken), tidied.lines)
    return Configuration(draft.path, draft.settings, draft.plugins, draft.options, warnings)


def _judge(
    document: Document, tidied: Tidied, pools: PoolOptions, path: Path
) -> tuple[list[Problem], Draft | None, set[Place]]:
    """What is wrong with keys and values by themselves, and what is left to judge by rules."""
    plugins, options, of_pools = pools.check(tidied.data, path.parent)
    settled = settle(pools.without_own_keys(tidied.data), path.parent)
    values = [p for p in (*of_pools, *settled.problems) if p.place not in tidied.guessed]
    broken = {*settled.broken, *(p.place for p in of_pools)}
    # What was read under another name is as good as its mistake: rules do not judge it.
    broken |= {p for p in tidied.guessed if not isinstance(_at(tidied.data, p), dict)}
    draft = None
    if settled.settings is not None:
        names = _written_names(tidied.data, settled.settings.node_pools)
        draft = Draft(path, settled.settings, plugins, options, names, tidied.lines)
    return [*tidied.problems, *document.problems, *values], draft, broken


def _written_names(data: Any, pools: Iterable[Any]) -> tuple[str, ...]:
    raw = data.get("node_pools")
    written = [p.get("name") for p in raw if isinstance(p, dict)] if isinstance(raw, list) else []
    return tuple(name for name in written if isinstance(name, str))


def _at(data: Any, place: Place) -> Any:
    for part in place:
        data = data[part]
    return data


def _sound(findings: Iterable[Finding], broken: set[Place]) -> list[Problem]:
    """What rules found, where they looked at nothing that is wrong already."""
    return [
        Problem(f.place, f.message)
        for f in findings
        if not any(touches(place, broken) for place in (f.place, *f.because))
    ]


def _once(problems: Iterable[Problem]) -> Iterable[Problem]:
    """The first that is said of each place: what follows is said because of it."""
    first: dict[Place, Problem] = {}
    for problem in problems:
        first.setdefault(problem.place, problem)
    return first.values()


def _located(problems: Iterable[Problem], lines: Mapping[Place, int]) -> tuple[Problem, ...]:
    """With their lines, in the order of the file."""
    placed = [p if p.line else replace(p, line=_line(p.place, lines)) for p in problems]
    return tuple(sorted(placed, key=lambda p: (p.line or 0, p.path)))


def _line(place: Place, lines: Mapping[Place, int]) -> int | None:
    """The line of a place, else that of the nearest section around it."""
    while place and place not in lines:
        place = place[:-1]
    return lines.get(place)
