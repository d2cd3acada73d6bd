"""From a file to a checked configuration: every problem at once, or a value that can be used."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from elasticd.errors import UsageError
from elasticd.provider import ProviderPlugin
from elasticd.settings.cross_check import cross_check
from elasticd.settings.document import Document, Place, Problem, read_document
from elasticd.settings.host_check import host_check
from elasticd.settings.model import Model, NodePool, Settings
from elasticd.settings.paths import demo_model_dir, resolve

_SOCKET_LIMIT = 107
"""Bytes of a Unix socket's path that Linux takes."""


class BadConfiguration(UsageError):
    """A configuration with problems; the message has one line for each."""

    def __init__(self, path: Path, problems: tuple[Problem, ...]) -> None:
        self.path = path
        self.problems = problems
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        lines = [f"{path}: {count} in the configuration"]
        lines += [f"  {_where(path, p)}: {p.path}: {p.message}" for p in problems]
        super().__init__("\n".join(lines))


@dataclass(frozen=True, slots=True)
class Configuration:
    """Checked settings with what depends on where the file lies.

    `plugins` and `options` are by pool name. Relative paths count from the file's directory.
    """

    path: Path
    settings: Settings
    plugins: Mapping[str, ProviderPlugin]
    options: Mapping[str, Any]

    @property
    def state_dir(self) -> Path:
        """Everything elasticd keeps."""
        return resolve(self.settings.state_dir, self.path.parent)

    @property
    def admin_socket(self) -> Path:
        """Where commands reach the controller."""
        given = self.settings.admin.socket
        return resolve(given, self.path.parent) if given else self.state_dir / "run" / "admin.sock"

    def model_source(self, model: Model) -> str:
        """What the engine is given as its model: a directory."""
        if model.source == "demo:tiny":
            return str(demo_model_dir())
        return str(resolve(model.source.removeprefix("file:"), self.path.parent))


Providers = Mapping[str, Callable[[], ProviderPlugin]]
"""Known providers by name; each is imported only when a pool uses it."""


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
    path = path.absolute()
    document = read_document(path)
    known = installed_providers() if providers is None else providers
    plugins, options, problems = _check_pools(document, known)
    settings: Settings | None = None
    try:
        settings = Settings.model_validate(_without_provider_keys(document.data))
    except ValidationError as bad:
        problems += [Problem(_place(e["loc"]), _message(e)) for e in _errors(bad)]
    if settings is not None:
        problems += cross_check(settings)
    if settings is not None and not problems and not document.problems:
        configuration = Configuration(path, settings, plugins, options)
        problems += _check_paths(configuration)
        if look_on_host:
            problems += host_check(settings, options, configuration.model_source)
        if not problems:
            return configuration
    told = {p.place for p in document.problems}
    located = [
        Problem(p.place, p.message, document.line_of(p.place))
        for p in problems
        if p.place not in told
    ]
    found = sorted([*document.problems, *located], key=lambda p: (p.line or 0, p.path))
    raise BadConfiguration(path, tuple(found))


def _where(path: Path, problem: Problem) -> str:
    return f"{path.name}:{problem.line}" if problem.line else path.name


def _raw_pools(data: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    pools = data.get("node_pools") if isinstance(data, dict) else None
    for index, pool in enumerate(pools if isinstance(pools, list) else ()):
        if isinstance(pool, dict):
            yield index, pool


def _without_provider_keys(data: Any) -> Any:
    """The file without the keys that only a provider can judge."""
    kept = {
        index: {k: v for k, v in pool.items() if k in NodePool.model_fields}
        for index, pool in _raw_pools(data)
    }
    if not kept:
        return {} if data is None else data
    pools = [kept.get(index, pool) for index, pool in enumerate(data["node_pools"])]
    return {**data, "node_pools": pools}


def _check_pools(
    document: Document, known: Providers
) -> tuple[dict[str, ProviderPlugin], dict[str, Any], list[Problem]]:
    """Finds each pool's provider and lets it judge its own keys."""
    plugins: dict[str, ProviderPlugin] = {}
    options: dict[str, Any] = {}
    problems: list[Problem] = []
    for index, pool in _raw_pools(document.data):
        provider = pool.get("provider")
        if not isinstance(provider, str):
            continue  # told by the pool's own check
        place: Place = ("node_pools", index)
        if provider not in known:
            names = ", ".join(sorted(known)) or "none is installed"
            message = f"unknown provider {provider!r}; known: {names}"
            problems.append(Problem((*place, "provider"), message))
            continue
        try:
            plugin = known[provider]()
        except (ImportError, AttributeError) as bad:
            message = f"provider {provider!r} cannot be loaded ({bad}); is its extra installed?"
            problems.append(Problem((*place, "provider"), message))
            continue
        own = {str(k): v for k, v in pool.items() if k not in NodePool.model_fields}
        try:
            checked = plugin.options.model_validate(own)
        except ValidationError as bad:
            problems += [Problem((*place, *_place(e["loc"])), _message(e)) for e in _errors(bad)]
            continue
        plugins[str(pool.get("name"))] = plugin
        options[str(pool.get("name"))] = checked
    return plugins, options, problems


def _check_paths(configuration: Configuration) -> list[Problem]:
    size = len(str(configuration.admin_socket).encode())
    if size <= _SOCKET_LIMIT:
        return []
    message = (
        f"the admin socket's path has {size} bytes and Linux takes {_SOCKET_LIMIT}: "
        f"{configuration.admin_socket}; set admin.socket or a shorter state_dir"
    )
    return [Problem(("state_dir",), message)]


def _errors(bad: ValidationError) -> list[Any]:
    return list(bad.errors(include_url=False, include_context=False))


def _place(loc: tuple[int | str, ...]) -> Place:
    """Pydantic's location without its own marks (`[key]`, union members)."""
    return tuple(part for part in loc if part not in ("[key]", "CommandEngine"))


_MESSAGES = {
    "extra_forbidden": "unknown key",
    "missing": "is missing",
    "string_type": "must be text (in quotes, if it looks like a number)",
    "int_type": "must be a whole number, in decimal digits",
    "float_type": "must be a number",
    "tuple_type": "must be a list",
    "dict_type": "must be a mapping of keys to values",
    "model_type": "must be a mapping of keys to values",
}


def _message(error: Mapping[str, Any]) -> str:
    given = error.get("input")
    known = _MESSAGES.get(error["type"])
    if error["type"] in ("missing", "extra_forbidden") and known:
        return known
    text = known or str(error["msg"]).removeprefix("Value error, ")
    shown = isinstance(given, str | int | float) and repr(given) not in text
    return f"{text}, not {given!r}" if shown and error["type"] != "value_error" else text
