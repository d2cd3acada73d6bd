"""The one place that says how Ray is started: its environment and its command lines.

Standard library only: the same words start the head, a rented machine's node, and the driver.
Reasons for each setting stand beside it; they were measured, see `docs/decisions/`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

NODE_LABEL = "elasticd-node"

# Ray puts unix sockets under `<temp-dir>/session_<date>_<pid>/sockets/`; the kernel allows 107
# characters in all, and the part that Ray appends takes up to 66.
_LONGEST_TEMP_DIR = 40

_SHARED: Mapping[str, str] = {
    # Set always: left unset, a stray ~/.ray/auth_token decides.
    "RAY_AUTH_MODE": "token",
    # With Ray's own 60 s an absent head kills every node and every replica.
    "RAY_gcs_rpc_server_reconnect_timeout_s": "3600",
    # A killed node refuses connections and is noticed in about five periods; a node that is only
    # slow has five times ten seconds, since a false death would take working replicas down.
    "RAY_health_check_initial_delay_ms": "2000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "10000",
    "RAY_health_check_failure_threshold": "5",
    # Ray would kill our actor, and with it a working engine, for memory that others use.
    "RAY_memory_monitor_refresh_ms": "0",
    # The kernel would kill our actors first, which say why an engine ended; engines have a score
    # of their own.
    "RAY_worker_oom_score_adjustment": "0",
    # Ray would start our actors, and with them the engines, at niceness 15: next to anything else
    # that computes, an engine would then take minutes to load and to answer.
    "RAY_worker_niceness": "0",
    # Draining is decided elsewhere: told to end, a node ends.
    "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
}

# `grpc` is hidden from the starting process only: where another package brings it, Ray would open
# its client server, a second door for running code, on a fixed port.
_RAY_WITHOUT_CLIENT_SERVER = (
    "import runpy, sys; sys.modules['grpc'] = None; "
    "runpy.run_module('ray.scripts.scripts', run_name='__main__', alter_sys=True)"
)


def shared_env() -> dict[str, str]:
    """What head, nodes and drivers must agree on; travels to nodes when they join."""
    return dict(_SHARED)


def without_rays_own(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without any word for Ray: another cluster's address, store or token in it
    would make ours join, use or refuse that one."""
    return {name: value for name, value in environ.items() if not name.startswith("RAY_")}


def attached_env(token_file: Path, settings: Mapping[str, str] = _SHARED) -> dict[str, str]:
    """Environment additions of a node or a driver that holds Ray's token in `token_file`."""
    return {**settings, "RAY_AUTH_TOKEN_PATH": str(token_file)}


def head_env(token_file: Path, store: Path) -> dict[str, str]:
    """Environment additions of the head, which keeps its state in the directory `store`."""
    return {
        **attached_env(token_file),
        "RAY_gcs_storage": "rocksdb",
        "RAY_gcs_storage_path": str(store),
    }


def head_command(port: int, temp_dir: Path, node_ip: str | None = None) -> list[str]:
    """`ray start` of a head that runs nothing itself."""
    return [
        *(sys.executable, "-c", _RAY_WITHOUT_CLIENT_SERVER),
        *("start", "--head", "--port", str(port)),
        *("--num-gpus", "0", "--include-dashboard=false", "--no-monitor"),
        *_common_options(temp_dir, node_ip),
    ]


def node_command(
    address: str,
    temp_dir: Path,
    node_id: str,
    declared_gpus: int | None,
    node_ip: str | None = None,
) -> list[str]:
    """`ray start` of one node. `declared_gpus` `None`: Ray counts the real ones."""
    gpus = () if declared_gpus is None else ("--num-gpus", str(declared_gpus))
    return [
        *(sys.executable, "-m", "ray.scripts.scripts"),
        *("start", "--address", address, "--labels", f"{NODE_LABEL}={node_id}"),
        *gpus,
        *_common_options(temp_dir, node_ip),
    ]


def _common_options(temp_dir: Path, node_ip: str | None) -> list[str]:
    return [
        *("--block", "--disable-usage-stats", "--include-log-monitor=false"),
        *("--num-cpus", "0", "--object-store-memory", "80000000"),
        # Any free port: several nodes on one address would fight for a fixed range.
        *("--min-worker-port", "0", "--max-worker-port", "0"),
        *("--temp-dir", str(temp_dir)),
        *(("--node-ip-address", node_ip) if node_ip else ()),
    ]


def write_token(path: Path, token: str) -> None:
    """Writes a secret as a 0600 file that appears whole."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as out:
        out.write(token)
    draft.replace(path)


def short_temp_dir(wanted: Path) -> Path:
    """Makes Ray's temp-dir: `wanted`, or a short stand-in where the path is too long for sockets.

    The stand-in's name is made from `wanted`, so the next life finds the same one. Raises
    `PermissionError` if somebody else owns it.
    """
    wanted = wanted.absolute()
    folder = wanted
    if len(str(wanted)) > _LONGEST_TEMP_DIR:
        digest = hashlib.sha256(str(wanted).encode()).hexdigest()[:10]
        folder = Path(tempfile.gettempdir()) / f"elasticd-{os.getuid()}-{digest}"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    _check_owner(folder)
    _forget_old_sessions(folder)
    return folder


def remove_stand_in(folder: Path, wanted: Path) -> None:
    """After an orderly end: removes what `short_temp_dir(wanted)` made outside of `wanted`."""
    if folder != wanted.absolute():
        shutil.rmtree(folder, ignore_errors=True)


def _check_owner(folder: Path) -> None:
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise PermissionError(f"{folder}: belongs to another user; remove it or set TMPDIR")


def _forget_old_sessions(folder: Path) -> None:
    """Each start of Ray leaves its logs; those of the last two lives are enough."""
    sessions = sorted(folder.glob("session_2*"), key=lambda session: session.stat().st_mtime)
    for session in sessions[:-2]:
        shutil.rmtree(session, ignore_errors=True)
