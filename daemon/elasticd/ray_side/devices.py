"""The GPUs a replica may use: what Ray assigned against what the process sees. Never guessed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from elasticd.node.nvidia_smi import Gpu
from elasticd.node.nvidia_smi import gpus as nvidia_gpus

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
    present: Callable[[], Sequence[Gpu] | None] = nvidia_gpus,
) -> tuple[str, ...]:
    """The devices, as the engine will see them. Raises `DeviceMismatch`.

    `present` tells the NVIDIA devices that are really there, `None` where none can be listed.
    Declared GPUs (`ELASTICD_DECLARED_GPUS`) are nowhere to be seen: for them the visibility
    variable alone is compared.
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
    if driver_is_asked(environ):
        _check_present(visible, present())
    return tuple(visible)


def driver_is_asked(environ: Mapping[str, str]) -> bool:
    """Whether the GPUs are NVIDIA's and real, so that nvidia-smi can tell about them."""
    return bool(environ.get("CUDA_VISIBLE_DEVICES")) and "ELASTICD_DECLARED_GPUS" not in environ


def _check_present(visible: Sequence[str], there: Sequence[Gpu] | None) -> None:
    if not there:
        raise DeviceMismatch(
            f"Ray assigned GPUs {list(visible)}, but nvidia-smi lists none on this machine; "
            f"check the driver"
        )
    missing = [name for name in visible if not any(gpu.is_meant_by(name) for gpu in there)]
    if missing:
        known = [f"{gpu.index} ({gpu.uuid})" for gpu in there]
        raise DeviceMismatch(f"Ray assigned GPUs {missing}, nvidia-smi lists {known}")
