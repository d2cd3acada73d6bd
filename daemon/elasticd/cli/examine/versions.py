"""Python, Ray and vLLM: installed, and in step with what elasticd was made for."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Callable, Iterator
from importlib import metadata

from elasticd import __version__
from elasticd.bootstrap import LEAST_PYTHON
from elasticd.cli.examine.finding import Finding, fail, ok, warn
from elasticd.node.versions import DISTRIBUTIONS

_REQUIREMENT = re.compile(r"([A-Za-z0-9_-]+)\s*==\s*([0-9][^;\s]*)\s*;\s*extra\s*==\s*.(\w+).")


def examine(installed: Callable[[str], str | None] | None = None) -> Iterator[Finding]:
    """`installed` tells a distribution's version, `None` where it is not there."""
    look = installed or _installed
    python = platform.python_version()
    if sys.version_info < LEAST_PYTHON:
        yield fail("python", f"{python} at {sys.executable}", "install Python 3.11 or newer")
    else:
        yield ok("python", f"{python} at {sys.executable}, elasticd {__version__}")
    wanted = _wanted(metadata.requires("elasticd") or ())
    for name, distributions in DISTRIBUTIONS.items():
        yield _package(name, distributions, wanted.get(name, ""), look)


def _package(
    name: str, distributions: tuple[str, ...], wanted: str, look: Callable[[str], str | None]
) -> Finding:
    found = [(each, version) for each in distributions if (version := look(each))]
    advice = f"{sys.executable} -m pip install 'elasticd[{name}]'"
    if not found:
        need = (
            "the agent, the head and every node need it"
            if name == "ray"
            else ("a machine that runs models with `engine: vllm` needs it")
        )
        return warn(name, f"not installed; {need}", advice)
    if len(found) > 1:
        names = ", ".join(f"{each} {version}" for each, version in found)
        return fail(name, f"two builds at once: {names}", "uninstall the one that is not meant")
    each, version = found[0]
    if wanted and not _fits(version, wanted):
        # Ray refuses a mix of versions; vLLM's own interfaces differ from release to release.
        return fail(name, f"{each} {version}, but elasticd was made for {wanted}", advice)
    return ok(name, f"{each} {version}" + (f", as wanted ({wanted})" if wanted else ""))


def _wanted(requirements: tuple[str, ...] | list[str]) -> dict[str, str]:
    found = (_REQUIREMENT.match(line) for line in requirements)
    return {match[1]: match[2] for match in found if match and match[1] == match[3]}


def _fits(version: str, wanted: str) -> bool:
    plain = version.split("+", 1)[0]
    if wanted.endswith(".*"):
        return plain == wanted[:-2] or plain.startswith(wanted[:-1])
    return plain == wanted


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
