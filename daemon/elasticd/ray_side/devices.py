"""The GPUs a replica may use: what Ray assigned against what the process sees. Never guessed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence

# By which variable a vendor's processes see devices, in the order in which they are looked for.
_VISIBLE = (
    "CUDA_VISIBLE_DEVICES",
    "ASCEND_RT_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ONEAPI_DEVICE_SELECTOR",
    "MACA_VISIBLE_DEVICES",
)


class DeviceMismatch(Exception):
    """Ray's word and the process's view differ: starting would take somebody else's GPU."""


def check_devices(
    wanted: int,
    assigned: Sequence[str],
    environ: Mapping[str, str],
    present: Callable[[], frozenset[str] | None],
) -> tuple[str, ...]:
    """The devices, as the engine will see them. Raises `DeviceMismatch`.

    `present` tells indices and UUIDs of the NVIDIA devices that are really there, `None` where
    none can be listed. Declared GPUs (`ELASTICD_DECLARED_GPUS`) are nowhere to be seen: for them
    the visibility variable alone is compared.
    """
    if len(assigned) != wanted:
        raise DeviceMismatch(f"{wanted} GPUs ordered, Ray assigned {list(assigned)}")
    if wanted == 0:
        return ()
    variable = next((name for name in _VISIBLE if environ.get(name)), None)
    if variable is None:
        raise DeviceMismatch(
            f"Ray assigned GPUs {list(assigned)}, but none of {', '.join(_VISIBLE)} is set here; "
            f"is RAY_EXPERIMENTAL_NOSET_* set on the node?"
        )
    visible = [word.strip() for word in environ[variable].split(",")]
    if visible != list(assigned):
        raise DeviceMismatch(f"Ray assigned GPUs {list(assigned)}, {variable} shows {visible}")
    if variable == "CUDA_VISIBLE_DEVICES" and "ELASTICD_DECLARED_GPUS" not in environ:
        _check_present(visible, present())
    return tuple(visible)


def _check_present(visible: Sequence[str], there: frozenset[str] | None) -> None:
    if there is None:
        raise DeviceMismatch(
            f"Ray assigned GPUs {list(visible)}, but nvidia-smi lists none on this machine; "
            f"check the driver"
        )
    missing = [device for device in visible if device not in there]
    if missing:
        raise DeviceMismatch(f"Ray assigned GPUs {missing}, nvidia-smi lists {sorted(there)}")


def nvidia_devices() -> frozenset[str] | None:
    """Indices and UUIDs that nvidia-smi lists; `None` if it is absent, fails or hangs."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    try:
        listing = subprocess.run(
            [program, "--query-gpu=index,uuid", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=30.0,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    words = frozenset(word.strip() for word in listing.replace("\n", ",").split(","))
    return words - {""} or None
