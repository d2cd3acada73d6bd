"""The engine options that decide how much of a GPU's memory is left for requests."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

AUTO_LENGTH = -1
"""`max-model-len: auto`: the engine takes the longest that fits."""

_SHORT = {
    "tp": "tensor-parallel-size",
    "pp": "pipeline-parallel-size",
    "dp": "data-parallel-size",
}
_MULTIPLIERS = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_WHOLE = re.compile(r"(\d+)(\.\d+)?([kmgtKMGT]?)")


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """Read from a model's engine options; what is not given is the engine's own default.

    `utilization`: the share of a GPU's *whole* memory that the engine takes; vLLM's default was
    0.90 for years and is 0.92 in the version we run. `max_model_len` in tokens: `None` is the
    model's own, `AUTO_LENGTH` the longest that fits. `tensor_parallel`: `None` is up to us.
    `kv_cache_bytes` per GPU replaces what `utilization` would leave. `overhead_mib` per GPU:
    activations, CUDA graphs and communication buffers, 1.5 to 3 GiB in practice.
    """

    utilization: float = 0.92
    max_model_len: int | None = None
    dtype: str = "auto"
    kv_cache_dtype: str = "auto"
    quantization: str = ""
    tensor_parallel: int | None = None
    pipeline_parallel: int = 1
    data_parallel: int = 1
    kv_cache_bytes: int | None = None
    overhead_mib: int = 2048

    @property
    def copies(self) -> int:
        """How many groups of `tensor_parallel` GPUs one engine takes."""
        return self.pipeline_parallel * self.data_parallel


def read_settings(args: Iterable[tuple[str, str]]) -> MemorySettings:
    """From engine options, name and value without dashes in front; others are left alone.

    Raises `ValueError` with a sentence when the engine would not take a value either.
    """
    told = {_name(name): value.strip() for name, value in args}
    default = MemorySettings()
    length = told.get("max-model-len")
    return MemorySettings(
        utilization=_share(told.get("gpu-memory-utilization"), default.utilization),
        max_model_len=None if length is None else _length(length),
        dtype=told.get("dtype", default.dtype).lower(),
        kv_cache_dtype=told.get("kv-cache-dtype", default.kv_cache_dtype).lower(),
        quantization=told.get("quantization", default.quantization).lower(),
        tensor_parallel=_optional(told, "tensor-parallel-size"),
        pipeline_parallel=_optional(told, "pipeline-parallel-size") or 1,
        data_parallel=_optional(told, "data-parallel-size") or 1,
        kv_cache_bytes=_optional(told, "kv-cache-memory-bytes"),
    )


def _name(option: str) -> str:
    name = option.replace("_", "-")
    return _SHORT.get(name, name)


def _share(text: str | None, default: float) -> float:
    if text is None:
        return default
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0.0 < share <= 1.0:
        raise ValueError(f"gpu-memory-utilization must be above 0 and at most 1, not {text!r}")
    return share


def _length(text: str) -> int:
    if text.lower() in ("auto", "-1"):
        return AUTO_LENGTH
    return _amount("max-model-len", text)


def _optional(told: dict[str, str], name: str) -> int | None:
    return _amount(name, told[name]) if name in told else None


def _amount(name: str, text: str) -> int:
    """`32768`, `32k` (thousands) or `32K` (of 1024), as the engine reads them."""
    match = _WHOLE.fullmatch(text)
    if match is not None:
        whole, fraction, unit = match[1], match[2] or "", match[3]
        if unit in _MULTIPLIERS:
            amount = int(float(whole + fraction) * _MULTIPLIERS[unit])
        else:
            amount = 0 if fraction else int(whole) * _BINARY.get(unit, 1)
        if amount > 0:
            return amount
    raise ValueError(f"{name} must be a whole number above 0, such as 32768 or 32K, not {text!r}")
