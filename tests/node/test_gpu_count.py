"""How many GPUs a machine shows, its mask respected. The late driver in virtual time."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticd.node.gpu_count import BadMask, GpuCount, check_mask
from tests.node.stub_smi import StubSmi


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StubSmi:
    stub = StubSmi(tmp_path / "smi", gpus=4)
    stub.install(monkeypatch)
    return stub


def _counted(devices: Path, **environ: str) -> int:
    return GpuCount(environ, None, devices=devices)().count


def test_real_gpus_are_those_that_the_driver_lists(smi: StubSmi, tmp_path: Path) -> None:
    assert _counted(tmp_path) == 4
    smi.breaks()
    count = GpuCount({}, None, devices=tmp_path)()
    assert count.count == 0
    assert "nvidia-smi" in count.why


def test_a_host_mask_hides_the_others_whichever_way_it_names_them(
    smi: StubSmi, tmp_path: Path
) -> None:
    assert _counted(tmp_path, CUDA_VISIBLE_DEVICES="2,3") == 2
    assert _counted(tmp_path, CUDA_VISIBLE_DEVICES=f"{smi.uuids[2]}, 3,9") == 2
    assert _counted(tmp_path, CUDA_VISIBLE_DEVICES="") == 0
    assert _counted(tmp_path, CUDA_VISIBLE_DEVICES="NoDevFiles") == 0


def test_ascend_devices_are_counted_by_their_files_and_mask(tmp_path: Path) -> None:
    for name in ("davinci0", "davinci1", "davinci2", "davinci_manager"):
        (tmp_path / name).touch()
    assert _counted(tmp_path) == 3
    assert _counted(tmp_path, ASCEND_RT_VISIBLE_DEVICES="0,2") == 2


def test_declared_gpus_appear_when_their_driver_is_said_to() -> None:
    now = 100.0
    count = GpuCount({}, 2, late=180.0, clock=lambda: now, born=100.0)
    assert count().count == 0
    now = 279.9
    assert count().count == 0
    now = 280.0
    assert count().count == 2


def test_declared_gpus_may_never_appear() -> None:
    assert GpuCount({}, 2, late=float("inf"), clock=lambda: 1e12, born=0.0)().count == 0


def test_more_declared_gpus_than_the_mask_leaves_is_one_clear_message() -> None:
    check_mask({"CUDA_VISIBLE_DEVICES": "2,3"}, 2)
    check_mask({}, 4)
    check_mask({"CUDA_VISIBLE_DEVICES": "2,3"}, None)
    with pytest.raises(BadMask, match="4 GPUs are declared, but CUDA_VISIBLE_DEVICES='2,3' leaves"):
        check_mask({"CUDA_VISIBLE_DEVICES": "2,3"}, 4)
