"""What one machine was told before its watcher joins: by arguments and by environment.

Standard library only.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from elasticd.node import leftovers
from elasticd.node.gpu_count import BadMask, check_mask


class Failed(Exception):
    """The machine cannot serve; the message says why."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What this machine was told.

    `declared_gpus` `None`: Ray counts the real ones. `gpus_late`: seconds after which declared
    ones appear, to play a late driver. `expected_gpus` `None`: any number will do. `notices`: which
    cloud is asked whether this machine will go (empty: none); `metadata_url`: where, if elsewhere.
    """

    node_id: str
    agent_url: str
    join_token: str
    folder: Path
    declared_gpus: int | None
    node_ip: str | None = None
    expected_gpus: int | None = None
    gpus_late: float = 0.0
    notices: str = ""
    metadata_url: str = ""


def told_machine(
    node_id: str, agent_url: str, node_ip: str | None, environ: Mapping[str, str]
) -> Machine:
    """Reads the environment, and takes the join token out of this process's own.

    Raises `Failed`.
    """
    token = environ.get("ELASTICD_JOIN_TOKEN", "")
    if not token:
        raise Failed("ELASTICD_JOIN_TOKEN is not set; the boot script sets it")
    # Out of reach for everything started below.
    os.environ.pop("ELASTICD_JOIN_TOKEN")
    declared = _whole_number(environ, "ELASTICD_DECLARED_GPUS")
    expected = _whole_number(environ, "ELASTICD_EXPECTED_GPUS")
    try:
        late = float(environ.get("ELASTICD_DECLARED_GPUS_LATE") or 0.0)
        check_mask(environ, declared)
    except (ValueError, BadMask) as bad:
        raise Failed(str(bad)) from bad
    return Machine(
        node_id=node_id,
        agent_url=agent_url.rstrip("/"),
        join_token=token,
        folder=leftovers.node_folder(environ),
        declared_gpus=declared,
        node_ip=node_ip,
        expected_gpus=declared if expected is None else expected,
        gpus_late=late,
        notices=environ.get("ELASTICD_NOTICES", ""),
        metadata_url=environ.get("ELASTICD_METADATA_URL", ""),
    )


def _whole_number(environ: Mapping[str, str], name: str) -> int | None:
    value = environ.get(name, "")
    if value and not value.isdecimal():
        raise Failed(f"{name}={value!r} is not a number")
    return int(value) if value else None
