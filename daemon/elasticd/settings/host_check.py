"""What models need on this host, because a machine of a local pool is made of it.

Machines of any other provider have their own disks and GPUs, of which this host knows nothing.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from elasticd.settings.configuration import source_directory
from elasticd.settings.document import Place
from elasticd.settings.draft import Draft, Finding
from elasticd.settings.model import AUTO, CommandEngine, Model
from elasticd.settings.model_files import read_model
from elasticd.settings.sources import FileSource, parse_source

_LOCAL = "local"


def missing_on_host(draft: Draft) -> Iterator[Finding]:
    """What the models of local pools lack here."""
    for index, model in enumerate(draft.settings.models):
        at: Place = ("models", index)
        because = ((*at, "pools"), *draft.pool_places(model, "name", "provider", "gpus"))
        if told := _gpus(draft, model):
            yield Finding((*at, "gpus_per_replica"), told, because)
        if not any(pool.provider == _LOCAL for pool in draft.pools_of(model)):
            continue
        if told := _directory(draft, model):
            yield Finding((*at, "source"), told, (*because, (*at, "gpus_per_replica")))
        if isinstance(model.engine, CommandEngine):
            path = model.engine_env.get("PATH")
            told = _program(model.engine.command[0], path if isinstance(path, str) else None)
            if told:
                yield Finding((*at, "engine", "command"), told, because)


def _directory(draft: Draft, model: Model) -> str:
    source = parse_source(model.source)
    if not isinstance(source, FileSource):
        return ""
    directory = source_directory(model.source, draft.path.parent)
    if not Path(directory).is_dir():
        return f"there is no directory {directory}; write where the model lies"
    if model.gpus_per_replica == AUTO:
        try:
            read_model(Path(directory))
        except (ValueError, OSError) as bad:
            return f"gpus_per_replica: auto needs its shape: {bad}; write how many it takes"
    return ""


def _gpus(draft: Draft, model: Model) -> str:
    """Why no machine can ever hold a replica; empty if one can, or if that is not known."""
    most, pools = 0, draft.pools_of(model)
    for pool in pools:
        declared = getattr(draft.options.get(pool.name), "gpus", None)
        if pool.provider != _LOCAL or not isinstance(declared, int):
            return ""
        most = max(most, declared)
    if not pools or max(model.gpus_per_replica, 1) <= most:
        return ""
    names = ", ".join(pool.name for pool in pools)
    return (
        f"a replica needs {model.gpus_per_replica or 1} GPUs and a machine of {names} has at most "
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
