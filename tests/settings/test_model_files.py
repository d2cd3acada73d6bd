"""The shape of a model on this host: its configuration and the size of what the engine loads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from elasticd.settings.model_files import read_model, weight_bytes
from tests.core import known_models as known


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(known.LLAMA3_8B))
    return tmp_path


def put(folder: Path, name: str, size: int) -> None:
    (folder / name).write_bytes(b"x" * size)


def test_weights_in_several_files_are_added(folder: Path) -> None:
    put(folder, "model-00001-of-00002.safetensors", 300)
    put(folder, "model-00002-of-00002.safetensors", 200)
    assert read_model(folder).weight_bytes == 500


def test_an_index_tells_the_size_of_weights_that_are_not_all_there_yet(folder: Path) -> None:
    put(folder, "model-00001-of-00002.safetensors", 300)
    index = {"metadata": {"total_size": 4096}, "weight_map": {}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert weight_bytes(folder) == 4096


def test_weights_that_are_there_in_two_forms_count_once(folder: Path) -> None:
    put(folder, "model.safetensors", 300)
    put(folder, "consolidated.safetensors", 300)
    put(folder, "pytorch_model.bin", 300)
    assert weight_bytes(folder) == 300


def test_without_weights_sizes_are_computed(folder: Path) -> None:
    assert read_model(folder).weight_bytes is None
    put(folder, "model.safetensors", 0)
    assert weight_bytes(folder) is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no .*config.json"),
        (b"{", "config.json cannot be read"),
        (b"\xff\xfe\xff", "config.json cannot be read"),
        (b"[]", "holds no mapping"),
        (b"{}", "has no num_hidden_layers"),
        (b"[" * 100_000, "config.json cannot be read"),
    ],
)
def test_what_is_wrong_with_the_file_is_said_with_its_path(
    folder: Path, content: bytes | None, message: str
) -> None:
    (folder / "config.json").unlink()
    if content is not None:
        (folder / "config.json").write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        read_model(folder)
    assert str(folder) in str(caught.value)
