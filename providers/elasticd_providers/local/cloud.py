"""The machines of one pool on this host. Blocking; every public method holds the pool's file lock,
so that it is whole for other threads and other processes, and a caller that dies leaves either
nothing or a machine that the next caller finds.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from elasticd.provider import (
    Instance,
    InstanceNotFound,
    InstanceState,
    LaunchRequest,
    Offering,
    PoolContext,
    Rejected,
    Unavailable,
)
from elasticd_providers.local import process
from elasticd_providers.local.catalog import Catalog
from elasticd_providers.local.environment import machine_environment
from elasticd_providers.local.graves import Graves
from elasticd_providers.local.machine_init import now as boot_clock
from elasticd_providers.local.records import (
    Control,
    Illegible,
    MachineFiles,
    MachineRecord,
)
from elasticd_providers.local.switches import Switches

ADDRESS = "127.0.0.1"
_START_LIMIT = 30.0
"""Seconds until the init of a new machine must have said something."""
_KILL_PATIENCE = 1.0
_SHOWN = 8192
"""Bytes of a boot log that are shown, its end."""
_SAID_WHEN_KILLED = "unshare: sigprocmask unblock failed: Invalid argument"
"""By util-linux, of every machine that was killed; it would be read as the cause."""
_LONGEST_NODE_DIR = 40
"""Ray's unix sockets lie below it, and their paths are limited to 107 bytes."""
_SHORTEST_BASE = Path("/tmp")  # noqa: S108


class Cloud:
    """Launches, lists and ends machines."""

    def __init__(self, context: PoolContext, catalog: Catalog) -> None:
        self._context = context
        self._catalog = catalog
        self._machines = context.state_dir / "machines"
        self._graves = Graves(context.state_dir / "gone")
        self._lock = context.state_dir / "pool.lock"
        self._machines.mkdir(parents=True, exist_ok=True, mode=0o700)

    def offerings(self, switches: Switches) -> list[Offering]:
        """All of the catalog, sold out where the switches or the number of machines say so."""
        with process.exclusively(self._lock):
            return self._catalog.offerings(switches, machines=len(list(self._living())))

    def launch(self, request: LaunchRequest, switches: Switches) -> Instance:
        """The machine of `request.node_id`: the living one, the remembered dead one, a new one."""
        instance_id = self._instance_id(request)
        files = MachineFiles(self._machines / instance_id)
        with process.exclusively(self._lock):
            if process.alive(files):
                return _instance(files, _known(files))
            self._graves.bury(files)
            dead = self._dead(instance_id, request)
            if dead is not None:
                return dead
            machines = len(list(self._living()))
            offering = self._catalog.choose(request.offerings, switches, machines=machines)
            self._write_intent(files, request, offering, switches)
            self._start(files)
            return _instance(files, _known(files))

    def instances(self) -> list[Instance]:
        """The living machines with our cluster's name, whoever launched them."""
        with process.exclusively(self._lock):
            living = [(files, _known(files)) for files in self._living()]
            return [
                _instance(files, record)
                for files, record in living
                if record.cluster == self._context.cluster
            ]

    def terminate(self, instance_id: str) -> None:
        """Kills the machine; `InstanceNotFound` once nothing of it is left."""
        with process.exclusively(self._lock):
            files = self._find(instance_id)
            # Whatever it was told before, and even if nobody can read that any more.
            files.write_control(Control(kill_at=boot_clock()))
            if process.kill(files, _KILL_PATIENCE):
                self._graves.bury(files)

    def reclaim(self, instance_id: str, notice: float) -> None:
        """The machine ends in `notice` seconds; of two deadlines the earlier holds."""
        with process.exclusively(self._lock):
            files = self._find(instance_id)
            control, kill_at = files.control(), boot_clock() + notice
            if control.kill_at is None or kill_at < control.kill_at:
                notice_id = control.notice_id or _notice_id(instance_id, kill_at)
                files.write_control(replace(control, kill_at=kill_at, notice_id=notice_id))

    def withdraw(self, instance_id: str) -> None:
        """Takes a reclaim with notice back."""
        with process.exclusively(self._lock):
            files = self._find(instance_id)
            files.write_control(replace(files.control(), kill_at=None, notice_id=None))

    def hang(self, instance_id: str, hung: bool) -> None:
        """Stops every process of the machine but its init, or lets them go on."""
        with process.exclusively(self._lock):
            files = self._find(instance_id)
            files.write_control(replace(files.control(), hang=hung))

    def notices(self) -> dict[str, tuple[str, float] | None]:
        """Of every living machine: the notice it is under, as notice id and seconds left."""
        with process.exclusively(self._lock):
            return {files.root.name: _notice(files.control()) for files in self._living()}

    def boot_log(self, instance_id: str) -> str:
        """The end of what it printed; of a machine that is no more, what it left."""
        if not _is_name(instance_id):
            return ""
        with process.exclusively(self._lock):
            printed = MachineFiles(self._machines / instance_id).log_tail(_SHOWN)
            printed = printed or self._graves.of(instance_id).log_tail(_SHOWN)
        return printed.removesuffix(_SAID_WHEN_KILLED).rstrip()

    def _living(self) -> Iterator[MachineFiles]:
        """Buries the dead on the way."""
        for root in sorted(self._machines.iterdir()):
            files = MachineFiles(root)
            if process.alive(files):
                yield files
            else:
                self._graves.bury(files)

    def _find(self, instance_id: str) -> MachineFiles:
        """A machine that lives; a dead one is buried and not found.

        Looks at this one alone: what is wrong with another keeps nobody from ending it.
        """
        if _is_name(instance_id):
            files = MachineFiles(self._machines / instance_id)
            if process.alive(files):
                return files
            self._graves.bury(files)
        raise InstanceNotFound(f"local: there is no machine {instance_id}")

    def _dead(self, instance_id: str, request: LaunchRequest) -> Instance | None:
        """The machine that once was the request's, if there was one: it never comes back."""
        try:
            record = self._graves.of(instance_id).record()
        except Illegible:
            state = InstanceState.STOPPING
            return Instance(instance_id, request.node_id, request.ledger_id, state)
        return None if record is None else _described(record, InstanceState.STOPPING)

    def _instance_id(self, request: LaunchRequest) -> str:
        """The same for the same node, so that a repeated launch finds the first one's machine."""
        name = "\0".join((self._context.pool, request.cluster, request.ledger_id, request.node_id))
        return f"local-{hashlib.sha256(name.encode()).hexdigest()[:16]}"

    def _write_intent(
        self, files: MachineFiles, request: LaunchRequest, offering: Offering, switches: Switches
    ) -> None:
        """Everything a machine is started from, on disk before it is started."""
        delay = switches.boot_delay
        self._graves.bury(files)
        files.root.mkdir(mode=0o700)
        record = MachineRecord(
            instance_id=files.root.name,
            node_id=request.node_id,
            ledger_id=request.ledger_id,
            cluster=request.cluster,
            offering=offering,
            node_dir=str(_new_node_dir()),
            boot_delay=self._catalog.boot_delay if delay is None else delay,
            declared_gpus=self._catalog.declared_gpus,
            launched_at=time.time(),
            gpus_after=switches.gpus_after,
        )
        files.write_record(record)
        for directory in ("", "home", "tmp"):
            (Path(record.node_dir) / directory).mkdir(mode=0o700)
        descriptor = os.open(files.bootstrap, os.O_WRONLY | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as script:
            script.write(request.bootstrap)

    def _start(self, files: MachineFiles) -> None:
        record = _known(files)
        gpus = record.declared_gpus
        environment = machine_environment(Path(record.node_dir), gpus, os.environ)
        if gpus is not None and record.gpus_after != 0.0:
            never = record.gpus_after is None
            environment["ELASTICD_DECLARED_GPUS_LATE"] = "inf" if never else str(record.gpus_after)
        with process.exclusively(files.lock) as lock:
            process.spawn(files, environment, lock)
        deadline = time.monotonic() + _START_LIMIT
        while files.phase() is None:
            if not process.alive(files):
                said = files.log_tail() or "nothing"
                self._graves.discard(files)
                raise Rejected(
                    "local: the machine did not come up. This host must allow new PID and mount "
                    f"namespaces (and user namespaces, where we are not root). It said: {said}"
                )
            if time.monotonic() > deadline:
                raise Unavailable(f"local: the machine is slow to come up; see {files.log}")
            time.sleep(0.01)


def _is_name(instance_id: str) -> bool:
    """Whether it may name a directory of ours."""
    return instance_id not in ("", ".", "..") and "/" not in instance_id and "\0" not in instance_id


def _known(files: MachineFiles) -> MachineRecord:
    record = files.record()
    if record is None:
        raise Unavailable(f"local: {files.root} holds a living machine without machine.json")
    return record


def _instance(files: MachineFiles, record: MachineRecord) -> Instance:
    kill_at = files.control().kill_at
    if kill_at is not None and boot_clock() >= kill_at:
        return _described(record, InstanceState.STOPPING)
    if files.phase() == "running":
        return _described(record, InstanceState.RUNNING)
    return _described(record, InstanceState.PENDING)


def _described(record: MachineRecord, state: InstanceState) -> Instance:
    return Instance(
        instance_id=record.instance_id,
        node_id=record.node_id,
        ledger_id=record.ledger_id,
        state=state,
        offering=record.offering,
        address=ADDRESS if state is InstanceState.RUNNING else None,
        launched_at=record.launched_at,
    )


def _notice(control: Control) -> tuple[str, float] | None:
    if control.kill_at is None or control.notice_id is None:
        return None
    return control.notice_id, max(0.0, control.kill_at - boot_clock())


def _notice_id(instance_id: str, kill_at: float) -> str:
    return hashlib.sha256(f"{instance_id} {kill_at:.3f}".encode()).hexdigest()[:16]


def _new_node_dir() -> Path:
    """A free name, short enough for the sockets below it; claimed by `mkdir`, which is private."""
    name = f"elasticd-{secrets.token_hex(4)}"
    chosen = Path(tempfile.gettempdir()) / name
    return chosen if len(str(chosen)) <= _LONGEST_NODE_DIR else _SHORTEST_BASE / name
