"""Reading `config.json`: what is told in many ways is understood, what is not told is an error."""

from __future__ import annotations

import json
from typing import Any

import pytest

from elasticd.core.codec import decode, encode
from elasticd.core.fit import MemorySettings, ModelShape, read_shape, tensor_parallel_sizes
from elasticd.core.tensor_parallel import why_not_parallel
from tests.core import known_models as known

EVERY = [
    value
    for name, value in sorted(vars(known).items())
    if isinstance(value, dict) and ("num_hidden_layers" in value or "text_config" in value)
]


@pytest.mark.parametrize("config", EVERY)
def test_a_shape_survives_the_journal(config: dict[str, Any]) -> None:
    shape = read_shape(config, weight_bytes=10**10)
    assert decode(ModelShape, json.loads(json.dumps(encode(shape)))) == shape


def test_memory_settings_survive_the_journal() -> None:
    settings = MemorySettings(0.85, 32768, kv_cache_dtype="fp8", tensor_parallel=2)
    assert decode(MemorySettings, json.loads(json.dumps(encode(settings)))) == settings


@pytest.mark.parametrize(
    "missing",
    ["num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "vocab_size"],
)
def test_what_is_missing_is_named(missing: str) -> None:
    config = {k: v for k, v in known.QWEN25_14B.items() if k != missing}
    with pytest.raises(ValueError, match=rf"^config\.json has no {missing}$"):
        read_shape(config)


@pytest.mark.parametrize("value", ["48", 48.0, True, -1, [48]])
def test_what_is_no_count_is_named_with_its_value(value: Any) -> None:
    with pytest.raises(ValueError, match="num_hidden_layers must be a whole number, not"):
        read_shape(known.QWEN25_14B | {"num_hidden_layers": value})


def test_head_size_is_the_models_own_where_it_differs() -> None:
    assert read_shape(known.QWEN3_4B).head_dim == 128
    assert read_shape({k: v for k, v in known.QWEN3_4B.items() if k != "head_dim"}).head_dim == 80
    assert read_shape(known.QWEN3_4B | {"head_dim": None}).head_dim == 80


def test_without_key_value_heads_every_head_has_its_own() -> None:
    assert read_shape(known.LLAMA2_7B).kv_heads == 32


def test_tied_embeddings_are_counted_once_and_untold_ones_twice() -> None:
    one = 151936 * 2560
    tied, split = known.QWEN3_4B, known.QWEN3_4B | {"tie_word_embeddings": False}
    assert read_shape(tied).parameters.plain == one
    assert read_shape(split).parameters.plain == 2 * one
    untold = {k: v for k, v in tied.items() if k != "tie_word_embeddings"}
    assert read_shape(untold).parameters.plain == 2 * one


def test_the_text_part_of_a_multimodal_model_counts_and_its_vision_is_added() -> None:
    shape = read_shape(known.QWEN25_VL_7B)
    assert (shape.layers, shape.kv_heads) == (28, 4)
    alone = read_shape(known.QWEN25_VL_7B["text_config"])
    assert 0.5e9 < shape.parameters.total - alone.parameters.total < 0.8e9


def test_layers_without_experts_are_counted_as_dense() -> None:
    config = known.QWEN3_30B_A3B
    every = read_shape(config).parameters
    some = read_shape(config | {"mlp_only_layers": [0, 1]}).parameters
    second = read_shape(config | {"decoder_sparse_step": 2}).parameters
    listed = read_shape(config | {"moe_layer_freq": [1] * 12 + [0] * 36}).parameters
    assert every.dense == 0
    assert some.experts == every.experts * 46 // 48
    assert some.dense == 2 * 3 * 2048 * 6144
    assert second.experts == every.experts // 2
    assert listed.experts == every.experts // 4


def test_compressed_latents_count_only_where_the_engine_keeps_them() -> None:
    assert read_shape(known.DEEPSEEK_V3).latent == 576
    other = read_shape(known.DEEPSEEK_V3 | {"model_type": "minicpm3"})
    assert (other.latent, other.kv_heads, other.head_dim) == (0, 128, 192)


def test_a_cache_that_is_not_understood_is_refused() -> None:
    with pytest.raises(ValueError, match="the cache of this model is not known"):
        read_shape(known.DEEPSEEK_V3 | {"compress_ratios": [4, 128]})


def test_the_longest_context_is_the_one_the_engine_derives() -> None:
    base = known.QWEN25_14B
    assert read_shape(base).max_positions == 131072
    stretched = base | {"rope_scaling": {"type": "linear", "factor": 2.0}}
    assert read_shape(stretched).max_positions == 262144
    scaled_already = base | {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}
    assert read_shape(scaled_already).max_positions == 131072
    silent = {k: v for k, v in base.items() if k != "max_position_embeddings"}
    assert read_shape(silent).max_positions is None


def test_a_packing_that_is_not_known_needs_the_weight_files() -> None:
    config = known.LLAMA3_8B | {"quantization_config": {"quant_method": "origami"}}
    with pytest.raises(ValueError, match="quantised by origami is not known; the weight files"):
        read_shape(config)
    assert read_shape(config, weight_bytes=5 * 10**9).weight_bytes == 5 * 10**9
    with pytest.raises(ValueError, match="unnamed method"):
        read_shape(known.LLAMA3_8B | {"quantization_config": ["awq"]})


def test_weights_of_no_bytes_are_refused() -> None:
    with pytest.raises(ValueError, match="0 bytes are no weights"):
        read_shape(known.LLAMA3_8B, weight_bytes=0)


@pytest.mark.parametrize(
    ("ignored", "attention", "dense"),
    [
        ([], True, True),
        (["lm_head", "model.layers.0.self_attn.o_proj"], True, True),
        (["re:.*self_attn.*"], False, True),
        (["model.layers.*.self_attn"], False, True),
        ([f"model.layers.{n}.self_attn.o_proj" for n in range(48)], False, True),
        (["re:.*self_attn.*", "re:.*shared_experts.*"], False, False),
        (["re:(unbalanced"], True, True),
    ],
)
def test_layers_left_unpacked_are_seen(ignored: list[str], attention: bool, dense: bool) -> None:
    packed = known.W4A16 | {"ignore": ignored}
    quantization = read_shape(known.QWEN25_14B | {"quantization_config": packed}).quantization
    assert quantization is not None
    assert (quantization.attention, quantization.dense) == (attention, dense)


@pytest.mark.parametrize(
    ("told", "bytes_per_weight"),
    [
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, 1.01),
        ({"quant_method": "awq", "w_bit": 4, "q_group_size": 64}, 0.5625),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 0.5625),
        ({"quant_method": "modelopt", "quantization": {"quant_algo": "FP8"}}, 1.01),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 0.5625),
        ({"quant_method": "fbgemm_fp8"}, 1.01),
    ],
)
def test_packings_are_known_by_their_usual_names(
    told: dict[str, Any], bytes_per_weight: float
) -> None:
    quantization = read_shape(known.LLAMA3_8B | {"quantization_config": told}).quantization
    assert quantization is not None
    assert quantization.bytes_per_weight == pytest.approx(bytes_per_weight)


@pytest.mark.parametrize(
    ("config", "sizes"),
    [
        (known.QWEN25_14B, (1, 2, 4, 8)),  # 5 divides 40 heads, but neither 8 nor 13824
        (known.QWEN3_14B, (1, 2, 4, 8)),
        (known.QWEN25_VL_7B, (1, 2, 4)),  # 28 heads
        (known.LLAMA31_70B, (1, 2, 4, 8, 16)),  # 8 key-value heads twice
        (known.DEEPSEEK_V3, (1, 2, 4, 8, 16)),
        (known.QWEN25_14B | {"quantization_config": known.AWQ}, (1, 2, 4)),  # 13824/8 splits 128
        (known.QWEN2_72B | {"quantization_config": known.GPTQ}, (1,)),  # 29568/2 splits 128
        (known.QWEN3_30B_A3B | {"quantization_config": known.FP8_BLOCKS}, (1, 2)),
        (known.QWEN3_235B_A22B | {"quantization_config": known.FP8_BLOCKS}, (1, 2, 4)),
        (known.GPT_OSS_120B, (1, 2, 4, 8, 16)),
    ],
)
def test_tensor_parallel_sizes_are_those_the_engine_takes(
    config: dict[str, Any], sizes: tuple[int, ...]
) -> None:
    assert tensor_parallel_sizes(read_shape(config), 16) == sizes


@pytest.mark.parametrize(
    ("config", "size", "reason"),
    [
        (known.QWEN25_14B, 3, "40 attention heads cannot be divided among 3 GPUs"),
        (known.QWEN25_14B, 5, "8 key-value heads cannot be divided among 5 GPUs"),
        (known.QWEN15_14B, 5, "an MLP 13696 wide cannot be divided among 5 GPUs"),
        (
            known.QWEN25_14B | {"quantization_config": known.AWQ},
            8,
            "awq groups of 128 weights do not divide 13824 / 8 GPUs",
        ),
        (
            known.LLAMA3_8B
            | {
                "num_attention_heads": 36,
                "head_dim": 128,
                "num_key_value_heads": 12,
                "intermediate_size": 12288,
                "vocab_size": 151936,
            },
            3,
            "a vocabulary of 151936 cannot be divided among 3 GPUs",
        ),
    ],
)
def test_what_stands_in_the_way_of_a_size_is_said(
    config: dict[str, Any], size: int, reason: str
) -> None:
    assert why_not_parallel(read_shape(config), size) == reason
