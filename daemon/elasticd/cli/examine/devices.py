"""GPUs: what the driver shows, what the environment hides, who computes on them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from elasticd.cli.examine.finding import Finding, fail, ok, warn
from elasticd.node import nvidia_smi, process_tree

_MASKS = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES")


def examine(
    daemon_pid: int | None,
    ask: Callable[[], tuple[nvidia_smi.Gpu, ...] | None] = nvidia_smi.gpus,
    devices: Path = Path("/dev"),
) -> Iterator[Finding]:
    """`daemon_pid`: of the running controller, whose environment machines of this host get."""
    yield _driver(ask, devices)
    yield from _masks(daemon_pid)
    for app in nvidia_smi.compute_apps() or ():
        what = process_tree.command(app.pid)
        used = "" if app.used_mib is None else f", {app.used_mib} MiB"
        if "elasticd" not in what and "vllm" not in what.lower():
            yield warn(
                "gpus",
                f"{app.gpu_uuid} is computed on by process {app.pid} ({what}{used})",
                "end it, or hide that GPU from elasticd with CUDA_VISIBLE_DEVICES",
            )


def _driver(ask: Callable[[], tuple[nvidia_smi.Gpu, ...] | None], devices: Path) -> Finding:
    there = any(devices.glob("nvidia[0-9]*"))
    found = ask()
    if found:
        return ok("gpus", f"{len(found)} NVIDIA GPU{'s' * (len(found) != 1)}, the driver answers")
    if there:
        program = shutil.which("nvidia-smi")
        what = "nvidia-smi fails or hangs" if program else "nvidia-smi is not on the PATH"
        return fail(
            "gpus",
            f"/dev/nvidia* is there, but {what}: nobody knows which GPUs work",
            "see `dmesg` for Xid errors and reinstall the driver's tools; restart the machine if "
            "the driver hangs",
        )
    if any(devices.glob("davinci[0-9]*")):
        return ok("gpus", "Ascend devices are there; no NVIDIA GPU")
    return ok("gpus", "no GPU here: machines of this host need declared GPUs, engines run on CPU")


def _masks(daemon_pid: int | None) -> Iterator[Finding]:
    environment: Mapping[str, str] | None = os.environ
    whose = "this environment"
    if daemon_pid is not None:
        environment, whose = process_tree.environment(daemon_pid), "the daemon's environment"
    if environment is None:
        text = f"the environment of the daemon (process {daemon_pid}) cannot be read"
        yield warn("gpus", text, "run this as the daemon's user")
        return
    for name in _MASKS:
        value = environment.get(name)
        if value is None:
            continue
        if value.strip() in ("", "-1", "NoDevFiles", "void"):
            text = f"{name}={value} in {whose} hides every GPU"
            yield warn("gpus", text, "unset it where elasticd is started, if GPUs are meant")
        elif value.strip() != "all":
            text = f"{name}={value} in {whose}: elasticd uses these GPUs only"
            yield warn("gpus", text, "unset it where elasticd is started, if all are meant")
