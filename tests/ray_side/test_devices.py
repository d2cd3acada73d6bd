"""The devices a replica gets: exactly those that Ray gave it, or a clear refusal."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from elasticd.node.nvidia_smi import Gpu
from elasticd.ray_side.devices import DeviceMismatch, check_devices, driver_is_asked

FOUR = (Gpu("0", "GPU-aa00"), Gpu("1", "GPU-bb01"), Gpu("2", "GPU-cc02"), Gpu("3", "GPU-dd03"))


def _never() -> Sequence[Gpu] | None:
    raise AssertionError("declared GPUs are nowhere to be listed")


DECLARED = {"ELASTICD_DECLARED_GPUS": "4"}


def test_devices_that_agree_are_handed_on_as_the_process_sees_them() -> None:
    environ = {"CUDA_VISIBLE_DEVICES": "1,3", **DECLARED}
    assert check_devices(2, ("1", "3"), environ, _never) == ("1", "3")
    real = {"CUDA_VISIBLE_DEVICES": "1,3"}
    assert check_devices(2, ("1", "3"), real, lambda: FOUR) == ("1", "3")


def test_a_host_mask_of_real_devices_is_kept_as_it_is_written() -> None:
    """By index or by UUID, also a shortened one: what the operator masked reaches the engine."""
    for names in (("2", "3"), ("GPU-cc02", "GPU-dd03"), ("GPU-c", "3")):
        environ = {"CUDA_VISIBLE_DEVICES": ",".join(names)}
        assert check_devices(2, names, environ, lambda: FOUR) == names


@pytest.mark.parametrize(
    ("assigned", "environ", "message"),
    [
        (("0",), {"CUDA_VISIBLE_DEVICES": "0", **DECLARED}, "2 GPUs ordered"),
        (("0", "1"), {"CUDA_VISIBLE_DEVICES": "0", **DECLARED}, "shows"),
        (("0", "1"), {"CUDA_VISIBLE_DEVICES": "1,0", **DECLARED}, "shows"),
        (("0", "1"), DECLARED, "none of CUDA_VISIBLE_DEVICES"),
        (("0", "1"), {"CUDA_VISIBLE_DEVICES": "0,1"}, "nvidia-smi lists none"),
    ],
)
def test_devices_that_differ_are_a_clear_failure(
    assigned: tuple[str, ...], environ: dict[str, str], message: str
) -> None:
    with pytest.raises(DeviceMismatch, match=message):
        check_devices(2, assigned, environ, lambda: None)


def test_a_device_that_is_not_there_is_a_clear_failure() -> None:
    environ = {"CUDA_VISIBLE_DEVICES": "7"}
    with pytest.raises(DeviceMismatch, match="nvidia-smi lists"):
        check_devices(1, ("7",), environ, lambda: FOUR[:1])


def test_ascend_devices_are_left_as_ray_gives_them() -> None:
    environ = {"ASCEND_RT_VISIBLE_DEVICES": "4,5"}
    assert check_devices(2, ("4", "5"), environ, _never) == ("4", "5")


def test_only_real_nvidia_devices_have_a_driver_to_ask() -> None:
    assert driver_is_asked({"CUDA_VISIBLE_DEVICES": "0"})
    assert not driver_is_asked({"CUDA_VISIBLE_DEVICES": "0", **DECLARED})
    assert not driver_is_asked({"ASCEND_RT_VISIBLE_DEVICES": "0"})
    assert not driver_is_asked({"CUDA_VISIBLE_DEVICES": ""})
