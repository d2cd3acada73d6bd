"""What would make a model fit that does not: a shorter context, more GPUs, smaller weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from elasticd.core.fit import Fit, fit, gib, weight_bytes_per_gpu
from elasticd.core.memory_settings import AUTO_LENGTH, MemorySettings
from elasticd.core.model_shape import ModelShape
from elasticd.core.quantization import Quantization, four_bits, in_flight
from elasticd.core.tensor_parallel import tensor_parallel_sizes

_MOST_GPUS = 16
"""More GPUs than machines have today."""

_SMALLER = (("8-bit", Quantization("fp8", 1.01)), ("4-bit", Quantization("awq", four_bits(128))))


@dataclass(frozen=True, slots=True)
class Machine:
    """GPUs of one kind in one machine; memory of each in MiB."""

    gpu_kind: str
    gpu_count: int
    memory_mib: int


def would_fit(
    shape: ModelShape, settings: MemorySettings, machines: Sequence[Machine], gpus: int | None
) -> tuple[str, ...]:
    """Sentences, each with one thing that would do. `gpus` per replica; `None`: any number."""
    return tuple(
        sentence
        for sentence in (
            _shorter(shape, settings, machines, gpus),
            _more(shape, settings, machines, gpus),
            *_smaller(shape, settings, machines, gpus),
        )
        if sentence
    )


def tried(
    shape: ModelShape, settings: MemorySettings, machine: Machine, gpus: int | None
) -> Iterator[Fit]:
    """The model on each number of the machine's GPUs that comes into question."""
    fixed = settings.tensor_parallel
    if gpus is not None:
        fixed = max(1, gpus // settings.copies)
    most = machine.gpu_count // settings.copies
    sizes = tensor_parallel_sizes(shape, most) if fixed is None else (fixed,)
    for size in sizes:
        if size <= most:
            yield fit(shape, settings, machine.memory_mib, size)


def _shorter(
    shape: ModelShape, settings: MemorySettings, machines: Sequence[Machine], gpus: int | None
) -> str:
    auto, longest, where = replace(settings, max_model_len=AUTO_LENGTH), 0, ""
    for machine in machines:
        for result in tried(shape, auto, machine, gpus):
            if result.fits and result.length > longest:
                count = result.tensor_parallel * settings.copies
                longest, where = result.length, f"{count} x {machine.gpu_kind}"
    return f"max-model-len {longest} or less, on {where}" if longest else ""


def _more(
    shape: ModelShape, settings: MemorySettings, machines: Sequence[Machine], gpus: int | None
) -> str:
    """The fewest GPUs of a kind that is there, in a larger machine or by a larger number."""
    best: tuple[int, str] | None = None
    free = replace(settings, tensor_parallel=None)
    for kind, memory in sorted({(m.gpu_kind, m.memory_mib) for m in machines}):
        large = Machine(kind, _MOST_GPUS * settings.copies, memory)
        fitting = (r.tensor_parallel for r in tried(shape, free, large, None) if r.fits)
        size = next(fitting, None)
        if size is not None and (best is None or size < best[0]):
            best = (size, kind)
    if best is None:
        return ""
    count, kind = best[0] * settings.copies, best[1]
    if gpus is not None and any(m.gpu_kind == kind and m.gpu_count >= count for m in machines):
        return f"gpus_per_replica: {count}, on {kind}"
    return f"machines with {count} x {kind}"


def _smaller(
    shape: ModelShape, settings: MemorySettings, machines: Sequence[Machine], gpus: int | None
) -> Iterator[str]:
    if shape.quantization is not None or in_flight(settings.quantization) is not None:
        return
    size = weight_bytes_per_gpu(shape, settings, 1)
    for name, packed in _SMALLER:
        small = replace(shape, quantization=packed, weight_bytes=None)
        if any(r.fits for machine in machines for r in tried(small, settings, machine, gpus)):
            now = weight_bytes_per_gpu(small, settings, 1)
            yield f"{name} weights, about {gib(now)} instead of {gib(size)}"
            return
