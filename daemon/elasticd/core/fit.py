"""Which GPUs can hold a model: weights, KV cache, and the tensor-parallel sizes that work.

Sizes are bytes of one GPU unless said otherwise; memory of a GPU is in MiB as its driver reports
it. The engine takes a share of the whole memory, puts weights and working memory into it, and what
is left holds the KV cache. It starts only if one request of the greatest length fits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

from elasticd.core.gpu_memory import gpu_memory_mib
from elasticd.core.memory_settings import AUTO_LENGTH, MemorySettings, read_settings
from elasticd.core.model_shape import ModelShape, Parameters, read_shape
from elasticd.core.quantization import Quantization, in_flight
from elasticd.core.tensor_parallel import tensor_parallel_sizes, why_not_parallel
from elasticd.provider import Offering

__all__ = [
    "Fit",
    "MemorySettings",
    "ModelShape",
    "Parameters",
    "Quantization",
    "fit",
    "gib",
    "gpu_memory_mib",
    "gpus_needed",
    "kv_bytes_per_token",
    "read_settings",
    "read_shape",
    "tensor_parallel_sizes",
    "weight_bytes_per_gpu",
    "why_not_parallel",
]

BLOCK_TOKENS = 16
"""The engine hands out KV cache in blocks of so many tokens; one block it keeps to itself."""

_LENGTH_WHEN_NOT_TOLD = 2048
_DTYPES = {"float32": 4, "float": 4, "float16": 2, "half": 2, "bfloat16": 2}
_KV_DTYPES = {
    **_DTYPES,
    **dict.fromkeys(("fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc"), 1.0),
    "fp8_ds_mla": 656 / 576,  # its rotary part stays wide
}


@dataclass(frozen=True, slots=True)
class Fit:
    """Whether a model starts on GPUs of one size, and what is left for requests.

    All bytes are of one GPU. `tokens`: what the KV cache holds. `length`: of the longest request.
    `reason`: why it does not start; empty if it does.
    """

    tensor_parallel: int
    budget_bytes: int
    weight_bytes: int
    overhead_bytes: int
    kv_bytes_per_token: int
    tokens: int
    length: int
    reason: str = ""

    @property
    def fits(self) -> bool:
        """Whether the engine would start."""
        return not self.reason

    @property
    def sequences(self) -> float:
        """How many requests of the greatest length run at once."""
        return self.tokens / self.length if self.length else 0.0


def fit(shape: ModelShape, settings: MemorySettings, gpu_memory: int, tensor_parallel: int) -> Fit:
    """Whether the model starts on `tensor_parallel` GPUs of `gpu_memory` MiB each.

    With pipeline stages: on as many GPUs for each stage.
    """
    whole, overhead = gpu_memory * 2**20, settings.overhead_mib * 2**20
    weights = weight_bytes_per_gpu(shape, settings, tensor_parallel)
    per_token = kv_bytes_per_token(shape, settings, tensor_parallel)
    budget = int(whole * settings.utilization)
    room = budget - weights - overhead
    if settings.kv_cache_bytes is not None:
        budget = whole
        enough = budget - weights - overhead >= settings.kv_cache_bytes
        room = settings.kv_cache_bytes if enough else 0
    tokens = max(0, room // (per_token * BLOCK_TOKENS) - 1) * BLOCK_TOKENS
    result = Fit(
        tensor_parallel=tensor_parallel,
        budget_bytes=budget,
        weight_bytes=weights,
        overhead_bytes=overhead,
        kv_bytes_per_token=per_token,
        tokens=tokens,
        length=_length(shape, settings, tokens),
    )
    return replace(result, reason=_reason(shape, settings, result))


def weight_bytes_per_gpu(shape: ModelShape, settings: MemorySettings, tensor_parallel: int) -> int:
    """One GPU's share of the weights as they lie in memory, in bytes.

    Where the weight files were measured, the computed share is scaled to their true size.
    """
    packed = in_flight(settings.quantization) if shape.quantization is None else shape.quantization
    computed = _weights(shape, packed, _dtype_bytes(settings), tensor_parallel)
    if shape.weight_bytes is not None:
        stored = _weights(shape, shape.quantization, shape.dtype_bytes, 1)
        computed *= shape.weight_bytes / stored
    return math.ceil(computed / settings.pipeline_parallel)


def _weights(
    shape: ModelShape, packed: Quantization | None, dtype_bytes: int, tensor_parallel: int
) -> float:
    counts, plain = shape.parameters, float(dtype_bytes)
    small = packed.bytes_per_weight if packed is not None else plain
    attention = small if packed is not None and packed.attention else plain
    dense = small if packed is not None and packed.dense else plain
    split = (counts.attention - counts.key_value) * attention + counts.dense * dense
    split += counts.experts * small + counts.plain * plain
    heads_here = _kv_heads_per_gpu(shape, tensor_parallel)
    key_value = counts.key_value * attention * heads_here / shape.kv_heads
    return split / tensor_parallel + key_value + counts.replicated * plain


def kv_bytes_per_token(shape: ModelShape, settings: MemorySettings, tensor_parallel: int) -> int:
    """What one GPU keeps of one token of context, in bytes."""
    layers = math.ceil(shape.layers / settings.pipeline_parallel)
    # Of a compressed latent every GPU keeps the whole.
    elements = shape.latent or 2 * _kv_heads_per_gpu(shape, tensor_parallel) * shape.head_dim
    # Of a cache type that is not known the width of the model's own is the safe side.
    width = _KV_DTYPES.get(settings.kv_cache_dtype, _dtype_bytes(settings))
    return math.ceil(layers * elements * width)


def _kv_heads_per_gpu(shape: ModelShape, tensor_parallel: int) -> int:
    """Key-value heads are repeated where there are more GPUs than heads."""
    return max(1, shape.kv_heads // tensor_parallel)


def _dtype_bytes(settings: MemorySettings) -> int:
    """Of one unpacked weight in memory; `auto` serves wide checkpoints at 16 bits."""
    return _DTYPES.get(settings.dtype, 2)


def _length(shape: ModelShape, settings: MemorySettings, tokens: int) -> int:
    """Of the longest request, in tokens."""
    if settings.max_model_len == AUTO_LENGTH:
        return tokens if shape.max_positions is None else min(tokens, shape.max_positions)
    return settings.max_model_len or shape.max_positions or _LENGTH_WHEN_NOT_TOLD


def _reason(shape: ModelShape, settings: MemorySettings, result: Fit) -> str:
    """Why the engine would not start; empty if it would."""
    if why := why_not_parallel(shape, result.tensor_parallel):
        return why
    wanted = settings.kv_cache_bytes or 0
    if result.weight_bytes + result.overhead_bytes + wanted >= result.budget_bytes:
        cache = f", {gib(wanted)} of cache" if wanted else ""
        return (
            f"{gib(result.weight_bytes)} of weights{cache} and {gib(result.overhead_bytes)} of "
            f"working memory do not fit into the {gib(result.budget_bytes)} of each GPU that the "
            "engine may use"
        )
    if result.tokens < max(result.length, 1):
        longest = f"one request may have {result.length}" if result.length else "none is too few"
        return f"the cache holds {result.tokens} tokens and {longest}"
    return ""


def gib(size: int) -> str:
    """Bytes as people read them: GiB, of small things MiB."""
    return f"{size / 2**30:.1f} GiB" if size >= 2**29 else f"{size / 2**20:.1f} MiB"


def gpus_needed(
    shape: ModelShape, settings: MemorySettings, offering: Offering
) -> tuple[int | None, str]:
    """The fewest GPUs of one machine of `offering` that hold the model, and a sentence about it.

    `None` with the reason when it does not hold it, or when that cannot be known.
    """
    memory = offering.gpu_memory_mib
    if memory is None:
        memory = gpu_memory_mib(offering.gpu_kind)
    if memory is None:
        kind = offering.gpu_kind
        return None, f"memory of GPU kind {kind} is not known; set gpus_per_replica"
    return _needed(shape, settings, memory, offering.gpu_count, offering.gpu_kind)


@lru_cache(maxsize=4096)  # asked for every offering in every step, with few different answers
def _needed(
    shape: ModelShape, settings: MemorySettings, memory: int, most: int, kind: str
) -> tuple[int | None, str]:
    copies, fixed = settings.copies, settings.tensor_parallel
    if copies > 1 and fixed is None:
        return None, "the engine runs in several stages or copies; set tensor-parallel-size too"
    if fixed is not None and fixed * copies > most:
        return None, f"the engine wants {fixed * copies} GPUs and a machine has {most}"
    sizes = tensor_parallel_sizes(shape, most) if fixed is None else (fixed,)
    tried = [fit(shape, settings, memory, size) for size in sizes]
    for result in tried:
        if result.fits:
            gpus = result.tensor_parallel * copies
            return gpus, f"{gpus} x {kind} hold {result.tokens} tokens"
    if not tried:
        return None, "a machine has no GPUs"
    last = tried[-1]
    return None, f"{last.tensor_parallel * copies} x {kind} do not hold it: {last.reason}"
