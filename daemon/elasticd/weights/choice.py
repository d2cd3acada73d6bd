"""Which files of a repository an engine needs. Pure.

One format of weights, the way vLLM chooses: its own Mistral format where the repository has it
whole, else safetensors, else `.bin`, else `.pt`. Beside them the small files: configuration,
tokenizer, templates, custom code. Not: other formats, pictures, text for people.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from elasticd.weights.foreign import printable

_OTHER_WEIGHTS = frozenset(
    {
        ".safetensors", ".bin", ".pt", ".pth", ".gguf", ".ggml", ".onnx", ".onnx_data",
        ".h5", ".msgpack", ".ot", ".tflite", ".mlmodel", ".mlpackage", ".ckpt", ".npz",
        ".engine", ".nemo", ".llamafile", ".pkl", ".zip", ".tar", ".gz", ".xml", ".part",
    }
)  # fmt: skip
_FOR_PEOPLE = frozenset(
    {
        ".md", ".rst", ".pdf", ".png", ".jpg", ".jpeg", ".gif", ".svg", ".webp", ".ico",
        ".mp3", ".mp4", ".wav", ".mov", ".webm", ".html", ".ipynb", ".parquet",
        ".csv", ".log", ".sh",
    }
)  # fmt: skip
# In folders lie variants of the model; engines look there for small files only.
_IN_FOLDERS = frozenset({".json", ".txt", ".model", ".jinja", ".py"})
# A file system takes 255 bytes; `.part` is added while it comes.
_LONGEST_NAME = 250
_LARGEST = 2**60
_NO_WEIGHTS_BIN = ("training_args", "optimizer", "scheduler", "rng_state")


@dataclass(frozen=True, slots=True)
class HubFile:
    """One file of a repository. `sha256` of large files, `blob_id` (git's hash) of the others."""

    path: str
    size: int
    sha256: str = ""
    blob_id: str = ""


class NoWeights(Exception):
    """The repository holds nothing an engine could load; the message says what it holds."""


class BadEntry(ValueError):
    """What a hub lists is no file."""


def listed_file(path: Any, size: Any, sha256: Any = "", blob_id: Any = "") -> HubFile:
    """A file as a hub lists it. Raises `BadEntry` for what no file can be."""
    if not isinstance(path, str):
        raise BadEntry(f"it lists a file whose name is no text: {printable(repr(path), 60)}")
    name = printable(path, 60)
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= _LARGEST:
        raise BadEntry(f"it lists {name} with a size that is none: {printable(repr(size), 40)}")
    if not (isinstance(sha256, str) and isinstance(blob_id, str)):
        raise BadEntry(f"it lists {name} with a hash that is none")
    return HubFile(path, size, sha256, blob_id)


def weight_files(files: Sequence[HubFile]) -> tuple[HubFile, ...]:
    """The weights an engine loads. Raises `NoWeights`."""
    paths = {file.path for file in files}
    for accepts in _PREFERENCE:
        found = tuple(file for file in files if _at_root(file.path) and accepts(file.path, paths))
        if found:
            return _storable(found)
    suffixes = sorted({_suffix(file.path) for file in files} & _OTHER_WEIGHTS)
    holds = f"it holds {', '.join(suffixes)} files" if suffixes else "it holds no weights at all"
    raise NoWeights(
        f"no .safetensors, .bin or .pt weights at the top of the repository: {holds}; "
        f"name a repository in one of these formats, or download it yourself and use file:DIRECTORY"
    )


def needed_files(files: Sequence[HubFile]) -> tuple[HubFile, ...]:
    """Everything an engine needs, weights last and by path. Raises `NoWeights`."""
    weights = weight_files(files)
    small = [file for file in files if _is_small(file.path)]
    ordered = (*sorted(small, key=lambda f: f.path), *sorted(weights, key=lambda f: f.path))
    return _storable(ordered)


def _storable(files: tuple[HubFile, ...]) -> tuple[HubFile, ...]:
    """The files, all of which a disk can hold under their names. Raises `NoWeights`.

    Only those are judged that are needed: nobody misses an oddly named picture.
    """
    for file in files:
        parts = file.path.split("/")
        if not file.path.isprintable() or not {"", ".", ".."}.isdisjoint(parts):
            raise NoWeights(_odd(file, "cannot be stored under it"))
        if any(len(part.encode()) > _LONGEST_NAME for part in parts):
            raise NoWeights(_odd(file, f"no disk takes more than {_LONGEST_NAME} bytes"))
    return files


def _odd(file: HubFile, why: str) -> str:
    return (
        f"the hub lists a file with the name {printable(ascii(file.path), 60)}: {why}; name "
        "another repository, or download it yourself and use file:DIRECTORY"
    )


def _is_mistral(path: str, paths: set[str]) -> bool:
    return "params.json" in paths and _is_consolidated(path)


def _is_safetensors(path: str, paths: set[str]) -> bool:
    others = any(
        _at_root(p) and p.endswith(".safetensors") and not _is_consolidated(p) for p in paths
    )
    # Beside a model in shards the consolidated file is the same again.
    return path.endswith(".safetensors") and not (others and _is_consolidated(path))


def _is_bin(path: str, _: set[str]) -> bool:
    return path.endswith(".bin") and not path.startswith(_NO_WEIGHTS_BIN)


def _is_pt(path: str, _: set[str]) -> bool:
    return path.endswith(".pt") and not path.startswith(_NO_WEIGHTS_BIN)


_PREFERENCE: tuple[Callable[[str, set[str]], bool], ...] = (
    _is_mistral,
    _is_safetensors,
    _is_bin,
    _is_pt,
)


def _is_consolidated(path: str) -> bool:
    return path.startswith("consolidated") and path.endswith(".safetensors")


def _is_small(path: str) -> bool:
    suffix = _suffix(path)
    # The list comes from outside: a path that leads up or to the root would leave our directory.
    if any(part.startswith((".", "/")) for part in PurePosixPath(path).parts):
        return False
    if not _at_root(path):
        return suffix in _IN_FOLDERS
    return suffix not in _OTHER_WEIGHTS and suffix not in _FOR_PEOPLE


def _at_root(path: str) -> bool:
    return "/" not in path


def _suffix(path: str) -> str:
    return PurePosixPath(path).suffix.lower()
