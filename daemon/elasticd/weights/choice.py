"""Which files of a repository an engine needs. Pure.

One format of weights, the way vLLM chooses: its own Mistral format where the repository has it
whole, else safetensors, else `.bin`, else `.pt`. Beside them the small files: configuration,
tokenizer, templates, custom code. Not: other formats, pictures, text for people.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

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


def weight_files(files: Sequence[HubFile]) -> tuple[HubFile, ...]:
    """The weights an engine loads. Raises `NoWeights`."""
    paths = {file.path for file in files}
    for accepts in _PREFERENCE:
        found = tuple(file for file in files if _at_root(file.path) and accepts(file.path, paths))
        if found:
            return found
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
    return (*sorted(small, key=lambda f: f.path), *sorted(weights, key=lambda f: f.path))


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
