"""Of any model: more room is never worse, more GPUs never need more of each, sizes divide."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import hypothesis.strategies as st
from hypothesis import given

from elasticd.core.fit import (
    Fit,
    MemorySettings,
    ModelShape,
    fit,
    gpus_needed,
    kv_bytes_per_token,
    read_shape,
    tensor_parallel_sizes,
    weight_bytes_per_gpu,
)
from elasticd.provider import Market, Offering
from tests.core import known_models as known


@st.composite
def configs(draw: st.DrawFn) -> dict[str, Any]:
    kv_heads = draw(st.sampled_from([1, 2, 3, 4, 8, 12]))
    heads = kv_heads * draw(st.integers(1, 8))
    told = known.config(
        draw(st.integers(1, 100)),
        heads * draw(st.sampled_from([32, 64, 80, 128])),
        heads,
        128 * draw(st.integers(1, 200)),
        draw(st.integers(100, 260_000)),
        **known.kv(kv_heads, draw(st.sampled_from([None, 64, 128]))),
    )
    packing = draw(st.sampled_from([None, known.AWQ, known.FP8_BLOCKS, known.MXFP4]))
    if packing:
        told["quantization_config"] = packing
    if draw(st.booleans()):
        told |= {"num_experts": draw(st.integers(2, 64)), "moe_intermediate_size": 256}
    return told


@st.composite
def shapes(draw: st.DrawFn) -> ModelShape:
    measured = draw(st.none() | st.integers(10**8, 10**12))
    return read_shape(draw(configs()), measured)


SETTINGS = st.builds(
    MemorySettings,
    utilization=st.floats(0.05, 1.0),
    max_model_len=st.sampled_from([None, -1, 512, 8192, 131072]),
    kv_cache_dtype=st.sampled_from(["auto", "fp8"]),
    kv_cache_bytes=st.none() | st.integers(2**20, 2**36),
)
MEMORY = st.integers(1024, 300_000)


def bytes_used(result: Fit) -> int:
    cache = result.tokens * result.kv_bytes_per_token
    return result.weight_bytes + result.overhead_bytes + cache


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=5,
)


def is_read_or_refused(config: dict[str, Any]) -> bool:
    try:
        return weight_bytes_per_gpu(read_shape(config), MemorySettings(), 1) > 0
    except ValueError as bad:
        return str(bad).startswith("config.json")


@given(st.data(), JSON)
def test_a_config_that_holds_anything_is_read_or_refused_with_a_sentence(
    data: st.DataObject, value: Any
) -> None:
    config = data.draw(
        st.sampled_from([known.DEEPSEEK_V3, known.QWEN3_30B_A3B, known.LLAMA4_SCOUT])
    )
    keys = (*config, "rope_scaling", "moe_layers", "dtype", "kv_lora_rank", "vision_config")
    assert is_read_or_refused(config | {data.draw(st.sampled_from(keys)): value})


@given(JSON)
def test_packings_that_hold_anything_are_read_or_refused_with_a_sentence(value: Any) -> None:
    for packing in (known.W4A16, known.AWQ, known.MXFP4):
        for key in packing:
            config = known.LLAMA3_8B | {"quantization_config": packing | {key: value}}
            assert is_read_or_refused(config)


@given(shapes(), SETTINGS, MEMORY, st.integers(0, 100_000))
def test_more_memory_never_fits_less(
    shape: ModelShape, settings: MemorySettings, memory: int, more: int
) -> None:
    small, large = (fit(shape, settings, size, 1) for size in (memory, memory + more))
    assert large.tokens >= small.tokens
    assert large.fits or not small.fits


@given(shapes(), SETTINGS, MEMORY)
def test_what_fits_is_within_the_budget_and_long_enough(
    shape: ModelShape, settings: MemorySettings, memory: int
) -> None:
    for size in tensor_parallel_sizes(shape, 8):
        result = fit(shape, settings, memory, size)
        if result.fits:
            assert bytes_used(result) <= result.budget_bytes <= memory * 2**20
            assert result.tokens >= result.length > 0


@given(shapes(), SETTINGS, MEMORY)
def test_more_gpus_never_need_more_of_each_and_never_hold_less(
    shape: ModelShape, settings: MemorySettings, memory: int
) -> None:
    sizes = tensor_parallel_sizes(shape, 16)
    for fewer, more in pairwise(sizes):
        assert weight_bytes_per_gpu(shape, settings, more) <= weight_bytes_per_gpu(
            shape, settings, fewer
        )
        assert kv_bytes_per_token(shape, settings, more) <= kv_bytes_per_token(
            shape, settings, fewer
        )
        assert (
            fit(shape, settings, memory, more).tokens >= fit(shape, settings, memory, fewer).tokens
        )


@given(shapes(), st.integers(1, 16))
def test_allowed_sizes_divide_all_that_is_split(shape: ModelShape, most: int) -> None:
    sizes = tensor_parallel_sizes(shape, most)
    assert sizes[0] == 1
    assert sizes[-1] <= most
    for size in sizes:
        assert shape.heads % size == 0
        assert shape.kv_heads % size == 0 or size % shape.kv_heads == 0
        assert all(width % size == 0 for width in shape.widths)
        if size > 1 and shape.quantization is not None and shape.quantization.group:
            assert all(width // size % shape.quantization.group == 0 for width in shape.widths)


@given(shapes(), SETTINGS, MEMORY, st.integers(1, 8))
def test_auto_is_the_smallest_size_that_fits(
    shape: ModelShape, settings: MemorySettings, memory: int, count: int
) -> None:
    machine = Offering("p", "z", "m", "X", count, Market.SPOT, 0, gpu_memory_mib=memory)
    fitting = [
        size
        for size in tensor_parallel_sizes(shape, count)
        if fit(shape, settings, memory, size).fits
    ]
    gpus, sentence = gpus_needed(shape, settings, machine)
    assert gpus == (fitting[0] if fitting else None)
    assert sentence


@given(shapes())
def test_no_size_fits_beside_an_overhead_as_large_as_the_gpu(shape: ModelShape) -> None:
    settings = replace(MemorySettings(), overhead_mib=80_000)
    assert not fit(shape, settings, 80_000, 1).fits
