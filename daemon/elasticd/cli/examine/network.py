"""The ports of the configuration: free, ours, or held by whom."""

from __future__ import annotations

import errno
import os
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from elasticd.cli.examine.finding import Finding, fail, ok, warn
from elasticd.node import process_tree
from elasticd.node.head import MARKER as HEAD_MARKER
from elasticd.node.port_holder import port_holder
from elasticd.ops.process_mark import mark_file, read_living

if TYPE_CHECKING:
    from elasticd.settings.load import Configuration
    from elasticd.settings.units import Address

_PID = re.compile(r"pid ([0-9]+)")
_CONFIG, _DEFAULT = "ELASTICD_CONFIG", "/etc/elasticd/elasticd.yaml"
"""Where a command reads its configuration that was not told where."""

_HIDDEN = "a process of another"
"""How a holder that cannot be seen is spoken of; it may be ours, run by another user."""


def examine(config: Configuration, holder: Callable[[int], str] = port_holder) -> Iterator[Finding]:
    """One finding for each address that elasticd listens on."""
    from elasticd.cli.run_plan import parts

    for part in parts(config):
        mark = read_living(mark_file(config.state_dir / "run", part.spec.name))
        for address, key in part.listens:
            yield _port(config, address, key, holder, runs=mark is not None)


def _port(
    config: Configuration,
    address: Address,
    key: str,
    holder: Callable[[int], str],
    *,
    runs: bool,
) -> Finding:
    subject = f"port {address.port}"
    try:
        free = _is_free(address)
    except OSError as bad:
        return fail(subject, f"{key} {address}: {bad.strerror or bad}", f"correct {key}")
    if free:
        return ok(subject, f"{key} {address} is free")
    who = holder(address.port)
    if runs or _is_ours(who, config):
        return ok(subject, f"{key} {address} is held by elasticd: {who}")
    if who.startswith(_HIDDEN):
        advice = "look as root with `ss -ltnp`"
        return warn(subject, f"{key} {address} is held by {who}", advice)
    advice = f"stop it, or set another {key}"
    return fail(subject, f"{key} {address} is held by {who}", advice)


def _is_free(address: Address) -> bool:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address.host, address.port))
        except OSError as bad:
            if bad.errno == errno.EADDRINUSE:
                return False
            raise
    return True


def _is_ours(who: str, config: Configuration) -> bool:
    """Whether a process of this configuration's elasticd holds it, started by whomever."""
    found = _PID.match(who)
    if found is None:
        return False
    environment = process_tree.environment(int(found[1])) or {}
    if environment.get(HEAD_MARKER) == str(config.state_dir):
        return True
    process = Path(f"/proc/{found[1]}")
    try:
        words = process.joinpath("cmdline").read_bytes().split(b"\0")
        folder = process.joinpath("cwd").readlink()
    except OSError:
        return False
    if not any(b"elasticd" in word for word in words):
        return False
    named = [os.fsdecode(word).removeprefix("--config=") for word in words[1:] if word]
    named.append(environment.get(_CONFIG) or _DEFAULT)
    return any((folder / word).resolve() == config.path.resolve() for word in named)
