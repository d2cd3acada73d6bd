"""What `elasticd run` is going to start, and whether this machine lets it."""

from __future__ import annotations

import errno
import importlib.util
import os
import socket
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from elasticd.errors import UsageError
from elasticd.node.port_holder import port_holder
from elasticd.ops.process_mark import mark_file, read_living
from elasticd.ops.supervisor import ChildSpec
from elasticd.settings.load import Configuration
from elasticd.settings.units import Address


def under_systemd() -> bool:
    """Whether systemd started us: it reads our output and decides when we stop."""
    return bool(os.environ.get("INVOCATION_ID") or os.environ.get("NOTIFY_SOCKET"))


def releases(configuration: Configuration) -> bool:
    """Whether stopping gives the machines back."""
    on_stop = configuration.settings.on_stop
    return on_stop == "release" if on_stop else not under_systemd()


@dataclass(frozen=True, slots=True)
class Part:
    """One child, the addresses it will listen on, and the key that sets each of them."""

    spec: ChildSpec
    listens: tuple[tuple[Address, str], ...]


def parts(configuration: Configuration) -> tuple[Part, ...]:
    """The children in the order they start; they stop in the reverse order."""
    settings = configuration.settings
    head_port = Address("127.0.0.1", settings.ray.port)
    longest_drain = max(model.drain_timeout for model in settings.models)
    found = [
        _part(configuration, "agent", ((settings.agent.listen, "agent.listen"),), 20.0),
        _part(configuration, "controller", ((settings.admin.listen, "admin.listen"),), 20.0),
        _part(
            configuration,
            "gateway",
            ((settings.gateway.listen, "gateway.listen"),),
            longest_drain + 10.0,
        ),
    ]
    if settings.ray.managed:
        found.insert(0, _part(configuration, "head", ((head_port, "ray.port"),), 40.0))
    return tuple(found)


def _part(
    configuration: Configuration,
    name: str,
    listens: tuple[tuple[Address, str], ...],
    stop_grace: float,
) -> Part:
    argv = (sys.executable, "-m", "elasticd.cli", name, "-c", str(configuration.path))
    # Under systemd the journal keeps what the children say; in a terminal it would drown the rest.
    log = None if under_systemd() else configuration.state_dir / "logs" / f"{name}.log"
    # Whoever calls `run` wants it to serve, whatever an earlier life was told.
    first = ("--serve",) if name == "controller" else ()
    reloads = name in ("controller", "gateway")
    front = configuration.settings.gateway.listen if name == "gateway" else None
    return Part(
        ChildSpec(
            *(name, argv, log, stop_grace),
            first_args=first,
            reloads=reloads,
            listen=None if front is None else (front.host, front.port),
        ),
        listens,
    )


def check_ray() -> None:
    """Raises `UsageError` when the Ray side cannot start at all."""
    if importlib.util.find_spec("ray") is None:
        raise UsageError(
            "the cluster agent and the head need Ray, which is not installed beside elasticd; "
            f"run: {sys.executable} -m pip install 'elasticd[ray]'"
        )


def make_state_dir(configuration: Configuration) -> None:
    """Makes what is kept there readable for this user alone. Raises `UsageError` if it cannot."""
    state_dir = configuration.state_dir
    where = f"{configuration.path}: state_dir {state_dir}"
    try:
        for folder in ("run", "logs"):
            (state_dir / folder).mkdir(parents=True, exist_ok=True)
        state_dir.chmod(0o700)
    except OSError as bad:
        raise UsageError(
            f"{where} cannot be made: {bad.strerror} ({bad.filename}); set state_dir to a "
            "directory this user may write"
        ) from bad
    for folder in ("run", "logs"):
        if not os.access(state_dir / folder, os.W_OK | os.X_OK):
            raise UsageError(f"{where}: {folder} in it cannot be written; give it to this user")


def check_ports(plan: Iterable[Part], configuration: Configuration) -> None:
    """Raises `UsageError` naming every address that someone else listens on, and who it is.

    A part that still runs from before holds its own.
    """
    run_dir = configuration.state_dir / "run"
    taken = [
        f"{address} (key {key}) is taken by {port_holder(address.port)}"
        for part in plan
        if read_living(mark_file(run_dir, part.spec.name)) is None
        for address, key in part.listens
        if _is_taken(address)
    ]
    if taken:
        lines = "\n  ".join(taken)
        raise UsageError(
            f"{configuration.path}: cannot listen, so nothing was started:\n  {lines}\n"
            "stop what is there, or change the key to a free port"
        )


def _is_taken(address: Address) -> bool:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address.host, address.port))
        except OSError as bad:
            return bad.errno == errno.EADDRINUSE
    return False
