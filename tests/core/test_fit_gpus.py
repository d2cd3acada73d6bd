"""The table of GPU memory: many names, one size, and no guess."""

from __future__ import annotations

import pytest

from elasticd.core.gpu_memory import KNOWN_GPUS, gpu_memory_mib


@pytest.mark.parametrize(
    ("names", "gib"),
    [
        (["T4", "Tesla T4", "NVIDIA Tesla T4"], 15.0),
        (["A10G", "NVIDIA A10G", "a10g"], 22.0),
        (["RTX 4090", "GeForce RTX 4090", "NVIDIA GeForce RTX 4090", "RTX-4090", "rtx4090"], 23.5),
        (["vGPU-48GB", "RTX 4090 48G"], 47.4),
        (["L40S", "NVIDIA L40S"], 44.4),
        (["A100-80G", "NVIDIA A100-SXM4-80GB", "A100 80GB PCIe"], 79.2),
        (["A100-40G", "A100-SXM4-40GB"], 39.5),
        (["V100-16G", "Tesla V100-SXM2-16GB"], 15.8),
        (["H100", "NVIDIA H100 80GB HBM3"], 79.2),
        (["RTX-PRO-6000", "RTX PRO Server 6000"], 95.6),
        (["RTX-A6000", "NVIDIA RTX A6000"], 47.5),
        (["AMD-Instinct-MI300X-OAM", "MI300X"], 191.9),
        (["Ascend910B4"], 32.0),
    ],
)
def test_a_card_is_known_by_all_its_names(names: list[str], gib: float) -> None:
    for name in names:
        assert gpu_memory_mib(name) == pytest.approx(gib * 1024, abs=2), name


@pytest.mark.parametrize(
    "name", ["", "simulated", "nvidia", "A100", "V100", "A100 MIG 1g.5gb", "L4 0.5", "RTX 4091"]
)
def test_of_a_name_that_does_not_tell_nothing_is_claimed(name: str) -> None:
    assert gpu_memory_mib(name) is None


def test_every_card_of_the_table_is_found_by_its_own_name() -> None:
    assert {name: gpu_memory_mib(name) for name in KNOWN_GPUS} == dict(KNOWN_GPUS)
