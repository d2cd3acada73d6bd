"""What a machine runs, against what its cluster runs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from elasticd.node import versions
from elasticd.node.versions import ABSENT, WIRE, installed, mismatch, understood

HEAD = {"python": "3.11.7", "ray": "2.60.0", "vllm": "0.32.0", "elasticd": "0.1.0", "wire": "1"}


def differing(**its: str) -> str:
    return mismatch({**HEAD, **its}, HEAD)


def test_the_same_versions_fit() -> None:
    assert differing() == ""


@pytest.mark.parametrize(
    ("its", "named"),
    [
        ({"ray": "2.59.0"}, "the machine has Ray 2.59.0, the head has Ray 2.60.0; "),
        ({"python": "3.11.6"}, "the machine has Python 3.11.6, the head has Python 3.11.7; "),
        ({"vllm": "0.31.0"}, "the machine has vLLM 0.31.0, the head has vLLM 0.32.0; "),
        ({"ray": ABSENT}, "the machine has no Ray, the head has Ray 2.60.0; "),
    ],
)
def test_what_differs_is_named_with_both_versions_and_what_to_do(
    its: dict[str, str], named: str
) -> None:
    told = differing(**its)
    assert told.startswith(named)
    assert "put the same versions on the pool's machines" in told
    assert "\n" not in told


def test_all_that_differs_is_in_one_sentence() -> None:
    told = differing(ray="2.59.0", python="3.12.1")
    assert "the machine has Ray 2.59.0 and Python 3.12.1" in told
    assert "the head has Ray 2.60.0 and Python 3.11.7" in told


def test_what_is_not_known_is_not_compared() -> None:
    assert mismatch({}, HEAD) == ""
    assert mismatch({"elasticd": "9"}, HEAD) == ""
    assert mismatch({**HEAD, "ray": "1"}, {}) == ""


def test_another_elasticd_fits_as_long_as_its_wire_is_understood() -> None:
    assert differing(elasticd="0.2.0", wire="2") == ""
    assert differing(elasticd="0.0.1", wire="0") == ""
    told = differing(elasticd="3.0.0", wire="3")
    assert "elasticd 3.0.0 (wire version 3), the head has elasticd 0.1.0 (wire version 1)" in told


def test_builds_of_one_engine_for_other_hardware_are_the_same_version() -> None:
    assert differing(vllm="0.32.0+cu130") == ""
    assert differing(vllm="0.32.0+cpu") == ""
    assert differing(vllm="0.32.0+gabc123.cu130") != ""


def test_a_machine_without_vllm_has_no_other_version_of_it() -> None:
    assert differing(vllm=ABSENT) == ""


def test_where_the_head_has_no_vllm_the_other_machines_count() -> None:
    head = {**HEAD, "vllm": ABSENT}
    assert mismatch({"vllm": "0.31.0"}, head) == ""
    assert mismatch({"vllm": "0.31.0"}, head, {ABSENT}) == ""
    assert mismatch({"vllm": "0.32.0+cu130"}, head, {"0.32.0", "0.31.0"}) == ""
    told = mismatch({"vllm": "0.31.0"}, head, {"0.32.0"})
    assert told.startswith("the machine has vLLM 0.31.0, the other machines have vLLM 0.32.0; ")


def test_only_what_looks_like_a_version_is_taken() -> None:
    odd = {"ray": "2.60.0", "vllm": "a\nb", "python": 3, 4: "x", "wire": "9" * 100, "a b": "1"}
    assert understood(odd) == {"ray": "2.60.0"}


def test_this_environment_tells_its_own() -> None:
    found = installed()
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    assert found["wire"] == str(WIRE)
    assert found["ray"] == understood(found)["ray"]
    assert set(versions.in_words(found).split(", ")) >= {f"Ray {found['ray']}"}


def _stub_distribution(folder: Path, name: str, version: str) -> None:
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def test_the_first_on_the_path_counts_as_it_does_for_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _stub_distribution(tmp_path, "ray", "2.59.0")
    _stub_distribution(tmp_path, "vllm", "0.31.0")
    monkeypatch.syspath_prepend(tmp_path)
    assert (installed()["ray"], installed()["vllm"]) == ("2.59.0", "0.31.0")


def test_absent_is_absent_and_a_package_of_unknown_version_is_not_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").touch()
    (tmp_path / "empty").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert "vllm" not in installed()
    monkeypatch.setattr(sys, "path", [str(tmp_path / "empty")])
    monkeypatch.setattr(sys, "path_importer_cache", {})
    assert installed()["vllm"] == ABSENT
