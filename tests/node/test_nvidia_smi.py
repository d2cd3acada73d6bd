"""What is read from nvidia-smi, in its own words."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticd.node import nvidia_smi
from elasticd.node.nvidia_smi import ComputeApp, Gpu
from tests.node.stub_smi import StubSmi


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StubSmi:
    stub = StubSmi(tmp_path / "smi", gpus=2)
    stub.install(monkeypatch)
    return stub


def test_devices_are_known_by_index_and_uuid_also_a_shortened_one(smi: StubSmi) -> None:
    found = nvidia_smi.gpus()
    assert found == (Gpu("0", smi.uuids[0]), Gpu("1", smi.uuids[1]))
    assert [found[1].is_meant_by(name) for name in ("1", smi.uuids[1], "GPU-00000001")] == [
        True
    ] * 3
    assert not any(found[1].is_meant_by(name) for name in ("0", smi.uuids[0], "GPU-00000000", ""))


def test_processes_are_read_with_the_memory_they_use_where_it_is_told(smi: StubSmi) -> None:
    smi.computes((17, 0, "1534"), (18, 1, "[N/A]"))
    assert nvidia_smi.compute_apps() == (
        ComputeApp(17, smi.uuids[0], 1534),
        ComputeApp(18, smi.uuids[1], None),
    )


def test_no_processes_are_none_of_them_and_no_driver_is_not_known(smi: StubSmi) -> None:
    assert nvidia_smi.compute_apps() == ()
    smi.breaks()
    assert nvidia_smi.compute_apps() is None
    assert nvidia_smi.gpus() is None


def test_a_machine_without_the_program_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert nvidia_smi.gpus() is None
