"""Whether a model starts on a GPU and how much of its cache fits, against worked examples.

Tolerances: published sizes are rounded to three digits and leave out biases (a few in a thousand);
token counts in thousands are rounded to one thousand.
"""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from elasticd.core.fit import (
    MemorySettings,
    fit,
    gpus_needed,
    kv_bytes_per_token,
    read_settings,
    read_shape,
    weight_bytes_per_gpu,
)
from elasticd.core.memory_settings import AUTO_LENGTH
from elasticd.provider import Market, Offering
from tests.core import known_models as known

GIB = 2**30
PLAIN = MemorySettings()


def mib(gib: float) -> int:
    return int(gib * 1024)


def offering(kind: str, count: int, memory: int | None = None) -> Offering:
    return Offering("p", "z", "m", kind, count, Market.SPOT, 1_000_000, gpu_memory_mib=memory)


@pytest.mark.parametrize(
    ("config", "billions"),
    [
        (known.QWEN25_14B, 14.77),
        (known.QWEN3_14B, 14.77),
        (known.QWEN3_4B, 4.02),
        (known.LLAMA2_7B, 6.74),
        (known.LLAMA3_8B, 8.03),
        (known.LLAMA31_70B, 70.55),
        (known.GEMMA2_9B, 9.24),
        (known.QWEN2_72B, 72.71),
        (known.MIXTRAL_8X7B, 46.70),
        (known.QWEN2_57B_A14B, 57.41),
        (known.QWEN3_30B_A3B, 30.53),
        (known.QWEN3_235B_A22B, 235.09),
        (known.DEEPSEEK_V2_LITE, 15.71),
        (known.DEEPSEEK_V3, 671.03),
        (known.GPT_OSS_20B, 20.91),
        (known.GPT_OSS_120B, 116.83),
        (known.LLAMA4_SCOUT, 108.64),
    ],
)
def test_parameters_of_known_models_are_counted(config: dict[str, Any], billions: float) -> None:
    assert read_shape(config).parameters.total / 1e9 == pytest.approx(billions, rel=0.005)


@pytest.mark.parametrize(
    ("config", "per_token", "on_each_of_two"),
    [
        (known.QWEN25_14B, 192 * 1024, 96 * 1024),
        (known.QWEN3_14B, 160 * 1024, 80 * 1024),
        (known.QWEN15_14B, 800 * 1024, 400 * 1024),
        (known.LLAMA3_8B, 128 * 1024, 64 * 1024),
        (known.DEEPSEEK_V3, 70_272, 70_272),  # a compressed latent is whole on every GPU
        (known.DEEPSEEK_V2_LITE, 31_104, 31_104),
        (known.GPT_OSS_120B, 72 * 1024, 36 * 1024),  # sliding windows count as full
    ],
)
def test_the_cache_of_one_token_is_known(
    config: dict[str, Any], per_token: int, on_each_of_two: int
) -> None:
    shape = read_shape(config)
    assert kv_bytes_per_token(shape, PLAIN, 1) == per_token
    assert kv_bytes_per_token(shape, PLAIN, 2) == on_each_of_two


def test_key_value_heads_are_repeated_when_there_are_more_gpus_than_heads() -> None:
    shape = read_shape(known.QWEN25_VL_7B["text_config"] | {"num_key_value_heads": 2})
    assert kv_bytes_per_token(shape, PLAIN, 4) == kv_bytes_per_token(shape, PLAIN, 2)
    halves = weight_bytes_per_gpu(shape, PLAIN, 2)
    assert weight_bytes_per_gpu(shape, PLAIN, 4) > halves / 2


@pytest.mark.parametrize(
    ("gib", "share", "qwen25", "qwen3"),
    [
        (22.3, 0.90, 47_000, 57_000),
        (22.3, 0.92, 52_000, 62_000),
        (23.5, 0.90, 59_000, 71_000),
        (44.4, 0.90, 264_000, 317_000),
        (47.4, 0.92, 304_000, 365_000),
    ],
)
def test_a_14b_model_on_two_gpus_holds_the_tokens_of_the_worked_example(
    gib: float, share: float, qwen25: int, qwen3: int
) -> None:
    settings = MemorySettings(utilization=share, max_model_len=32768)
    for config, tokens in ((known.QWEN25_14B, qwen25), (known.QWEN3_14B, qwen3)):
        result = fit(read_shape(config), settings, mib(gib), 2)
        assert result.fits, result.reason
        assert result.weight_bytes / GIB == pytest.approx(13.76, abs=0.02)
        assert result.tokens == pytest.approx(tokens, abs=600)
        assert result.sequences == pytest.approx(result.tokens / 32768)


def test_two_small_gpus_hold_a_14b_model_only_with_a_capped_context() -> None:
    result = fit(read_shape(known.QWEN25_14B), PLAIN, mib(22.3), 2)
    assert result.reason == "the cache holds 51968 tokens and one request may have 131072"


def test_one_24_gib_gpu_holds_a_14b_model_in_4_bits_and_not_in_16() -> None:
    settings = MemorySettings(max_model_len=32768)
    wide = fit(read_shape(known.QWEN25_14B), settings, mib(22.3), 1)
    assert wide.reason == (
        "27.5 GiB of weights and 2.0 GiB of working memory do not fit into the 20.5 GiB of each "
        "GPU that the engine may use"
    )
    for packed in (known.AWQ, known.GPTQ, known.W4A16):
        narrow = fit(
            read_shape(known.QWEN25_14B | {"quantization_config": packed}), settings, mib(22.3), 1
        )
        assert narrow.fits
        assert 9.0 <= narrow.weight_bytes / GIB <= 10.0


def test_one_48_gib_gpu_holds_a_14b_model_with_about_55_thousand_tokens() -> None:
    result = fit(read_shape(known.QWEN25_14B), MemorySettings(0.9, 32768), mib(44.4), 1)
    assert result.fits
    assert result.tokens == pytest.approx(55_000, rel=0.05)


def test_a_14b_model_without_grouped_heads_holds_five_times_less() -> None:
    # With the weights of the worked example, 27.5 GiB, so that the cache alone differs.
    shape = read_shape(known.QWEN15_14B, weight_bytes=29_540_000_000)
    for gib, share, tokens in ((22.3, 0.90, 11_300), (22.3, 0.92, 12_400), (23.5, 0.90, 14_100)):
        result = fit(shape, MemorySettings(share, 8192), mib(gib), 2)
        assert result.fits
        assert result.tokens == pytest.approx(tokens, rel=0.02)


@pytest.mark.parametrize(
    ("config", "gigabytes"),
    [
        (known.GPT_OSS_120B, 65.2),
        (known.GPT_OSS_20B, 13.76),
        (known.QWEN25_14B | {"quantization_config": known.AWQ}, 9.98),
        (known.QWEN25_14B | {"quantization_config": known.FP8}, 16.3),
        (known.QWEN25_14B | {"quantization_config": known.W8A8}, 16.3),
        (known.QWEN25_14B | {"quantization_config": known.NVFP4}, 10.5),
        (known.DEEPSEEK_V3, 677.0),
    ],
)
def test_packed_weights_have_the_size_of_their_checkpoints(
    config: dict[str, Any], gigabytes: float
) -> None:
    size = weight_bytes_per_gpu(read_shape(config), PLAIN, 1)
    assert size / 1e9 == pytest.approx(gigabytes, rel=0.025)


def test_measured_weights_replace_the_count() -> None:
    shape = read_shape(known.QWEN25_14B, weight_bytes=30 * GIB)
    assert weight_bytes_per_gpu(shape, PLAIN, 1) == pytest.approx(30 * GIB, abs=16)
    assert weight_bytes_per_gpu(shape, PLAIN, 2) == pytest.approx(15 * GIB, rel=0.001)


def test_a_wide_checkpoint_is_served_at_16_bits_unless_the_engine_is_told_otherwise() -> None:
    shape = read_shape(known.LLAMA3_8B | {"torch_dtype": "float32"}, weight_bytes=32 * GIB)
    assert weight_bytes_per_gpu(shape, PLAIN, 1) == pytest.approx(16 * GIB, abs=16)
    wide = MemorySettings(dtype="float32")
    assert weight_bytes_per_gpu(shape, wide, 1) == pytest.approx(32 * GIB, abs=16)
    assert kv_bytes_per_token(shape, wide, 1) == 2 * kv_bytes_per_token(shape, PLAIN, 1)


def test_the_engine_may_pack_weights_as_it_loads_them() -> None:
    shape = read_shape(known.LLAMA3_8B, weight_bytes=16 * 10**9)
    for method, share in (("fp8", 0.57), ("bitsandbytes", 0.37), ("gptq_marlin", 1.0)):
        packed = weight_bytes_per_gpu(shape, MemorySettings(quantization=method), 1)
        assert packed / 16e9 == pytest.approx(share, abs=0.01)


def test_an_8_bit_cache_holds_twice_as_much_and_an_unknown_kind_counts_as_wide() -> None:
    shape = read_shape(known.QWEN25_14B)
    wide = kv_bytes_per_token(shape, PLAIN, 1)
    assert kv_bytes_per_token(shape, MemorySettings(kv_cache_dtype="fp8"), 1) == wide // 2
    assert kv_bytes_per_token(shape, MemorySettings(kv_cache_dtype="float128"), 1) == wide


def test_pipeline_stages_divide_layers_and_weights() -> None:
    shape = read_shape(known.LLAMA31_70B)
    staged = MemorySettings(tensor_parallel=4, pipeline_parallel=2)
    assert kv_bytes_per_token(shape, staged, 4) == kv_bytes_per_token(shape, PLAIN, 8)
    half = weight_bytes_per_gpu(shape, PLAIN, 4) / 2
    assert weight_bytes_per_gpu(shape, staged, 4) == pytest.approx(half, abs=1)


def test_a_cache_of_a_given_size_replaces_the_share() -> None:
    shape = read_shape(known.LLAMA3_8B)
    given = MemorySettings(utilization=0.05, max_model_len=8192, kv_cache_bytes=2 * GIB)
    result = fit(shape, given, mib(22.3), 1)
    assert result.fits
    assert result.tokens == 2 * GIB // (128 * 1024) - 16
    assert (
        "4.0 GiB of cache" in fit(shape, MemorySettings(kv_cache_bytes=4 * GIB), 20_000, 1).reason
    )


def test_an_automatic_length_takes_what_fits_up_to_the_models_own() -> None:
    settings = MemorySettings(max_model_len=AUTO_LENGTH)
    small = fit(read_shape(known.QWEN25_14B), settings, mib(22.3), 2)
    assert small.fits
    assert small.length == small.tokens
    assert fit(read_shape(known.QWEN25_14B), settings, mib(44.4), 2).length == 131_072
    assert not fit(read_shape(known.QWEN25_14B), settings, mib(22.3), 1).fits


def test_auto_takes_the_fewest_gpus_that_hold_the_model() -> None:
    shape, settings = read_shape(known.QWEN25_14B), MemorySettings(max_model_len=32768)
    assert gpus_needed(shape, settings, offering("L40S", 8))[0] == 1
    assert gpus_needed(shape, settings, offering("A10G", 4))[0] == 2
    assert gpus_needed(shape, settings, offering("T4", 8))[0] == 4
    gpus, why = gpus_needed(shape, settings, offering("A10G", 1))
    assert gpus is None
    assert why.startswith("1 x A10G do not hold it: 27.5 GiB of weights")


def test_auto_claims_nothing_of_gpus_it_does_not_know() -> None:
    shape = read_shape(known.QWEN3_4B)
    told = gpus_needed(shape, PLAIN, offering("Quantum 9", 8))
    assert told == (None, "memory of GPU kind Quantum 9 is not known; set gpus_per_replica")


def test_what_a_provider_says_of_its_gpus_counts_more_than_the_table() -> None:
    shape, settings = read_shape(known.QWEN25_14B), MemorySettings(max_model_len=32768)
    assert gpus_needed(shape, settings, offering("RTX 4090", 2, memory=mib(47.4)))[0] == 1
    assert gpus_needed(shape, settings, offering("Quantum 9", 2, memory=mib(47.4)))[0] == 1


def test_auto_keeps_to_the_sizes_the_engine_was_given() -> None:
    shape = read_shape(known.QWEN3_4B)
    four = MemorySettings(max_model_len=8192, tensor_parallel=2, pipeline_parallel=2)
    assert gpus_needed(shape, four, offering("L4", 4))[0] == 4
    told = gpus_needed(shape, four, offering("L4", 2))
    assert told == (None, "the engine wants 4 GPUs and a machine has 2")
    half_told = MemorySettings(pipeline_parallel=2)
    assert "set tensor-parallel-size too" in gpus_needed(shape, half_told, offering("L4", 4))[1]


def test_a_machine_without_gpus_holds_nothing() -> None:
    told = gpus_needed(read_shape(known.QWEN3_4B), PLAIN, offering("L4", 0))
    assert told == (None, "a machine has no GPUs")


def test_engine_options_are_read_as_the_engine_reads_them() -> None:
    told = read_settings(
        [
            ("gpu-memory-utilization", "0.85"),
            ("max-model-len", "32K"),
            ("kv-cache-dtype", "fp8"),
            ("dtype", "half"),
            ("quantization", "awq"),
            ("tensor-parallel-size", "2"),
            ("enforce-eager", "true"),
        ]
    )
    assert told == MemorySettings(0.85, 32768, "half", "fp8", "awq", 2)
    lengths = {"1k": 1000, "25.6k": 25600, "8192": 8192, "auto": -1, "-1": -1, "1M": 2**20}
    for text, length in lengths.items():
        assert read_settings([("max-model-len", text)]).max_model_len == length
    assert read_settings([]) == PLAIN
    short = read_settings([("tp", "2"), ("pp", "3"), ("dp", "2")])
    assert (short.tensor_parallel, short.copies) == (2, 6)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gpu-memory-utilization", "0"),
        ("gpu-memory-utilization", "nan"),
        ("gpu-memory-utilization", "90%"),
        ("max-model-len", "0"),
        ("max-model-len", "-5"),
        ("max-model-len", "1.5K"),
        ("max-model-len", "many"),
        ("tensor-parallel-size", "0"),
        ("tensor-parallel-size", ""),
    ],
)
def test_engine_options_that_the_engine_would_refuse_are_refused(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"^{name} must be .*not {re.escape(repr(value))}"):
        read_settings([(name, value)])


def test_the_usual_share_of_memory_is_the_installed_engines() -> None:
    engine = find_spec("vllm")
    if engine is None or engine.origin is None:
        pytest.skip("vLLM is not installed")
    text = (Path(engine.origin).parent / "config" / "cache.py").read_text(encoding="utf-8")
    found = re.search(r"gpu_memory_utilization: float = Field\(default=([0-9.]+)", text)
    assert found is not None
    assert MemorySettings().utilization == float(found[1])
