"""What models need on this host, because a machine of a local pool is made of it.

Machines of any other provider have their own disks and GPUs, of which this host knows nothing.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from elasticd.settings.document import Problem
from elasticd.settings.model import CommandEngine, Model, NodePool, Settings

_LOCAL = "local"


def host_check(
    settings: Settings, options: Mapping[str, Any], source_of: Callable[[Model], str]
) -> list[Problem]:
    """What is missing. `options`: each pool's own, by pool name."""
    problems: list[Problem] = []
    for index, model in enumerate(settings.models):
        pools = [
            pool for pool in settings.node_pools if pool.name in model.pools or not model.pools
        ]
        told = _gpus(model, pools, options)
        if told:
            problems.append(Problem(("models", index, "gpus_per_replica"), told))
        if not any(pool.provider == _LOCAL for pool in pools):
            continue
        if model.source != "demo:tiny" and not Path(source_of(model)).is_dir():
            message = f"there is no directory {source_of(model)}; write where the model lies"
            problems.append(Problem(("models", index, "source"), message))
        if isinstance(model.engine, CommandEngine):
            told = _program(model.engine.command[0], model.engine_env.get("PATH"))
            if told:
                problems.append(Problem(("models", index, "engine", "command"), told))
    return problems


def _gpus(model: Model, pools: list[NodePool], options: Mapping[str, Any]) -> str:
    """Why no machine can ever hold a replica; empty if one can, or if that is not known."""
    most = 0
    for pool in pools:
        declared = getattr(options.get(pool.name), "gpus", None)
        if pool.provider != _LOCAL or not isinstance(declared, int):
            return ""
        most = max(most, declared)
    if model.gpus_per_replica <= most:
        return ""
    names = ", ".join(pool.name for pool in pools)
    return (
        f"a replica needs {model.gpus_per_replica} GPUs and a machine of {names} has at most "
        f"{most}; raise `gpus` of the pool or lower this"
    )


def _program(name: str, path: str | None) -> str:
    """Why a program cannot be started; empty if it can, or if that is not known."""
    beside_the_engine = "/" in name and not Path(name).is_absolute()
    # A local machine looks beside the Python it runs first; `engine_env` replaces that.
    beside_us = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    if "{" in name or beside_the_engine or shutil.which(name, path=path or beside_us):
        return ""
    where = "does not exist or is not executable" if "/" in name else "is not on the PATH"
    return f"the program {name} {where}; install it or give its whole path"
