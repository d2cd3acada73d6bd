"""What the `config.json` of well-known models say, as far as memory depends on it."""

from __future__ import annotations

from typing import Any


def config(
    layers: int, hidden: int, heads: int, width: int, vocab: int, **more: Any
) -> dict[str, Any]:
    return {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "intermediate_size": width,
        "vocab_size": vocab,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        **more,
    }


def kv(heads: int, head_dim: int | None = None) -> dict[str, Any]:
    return {"num_key_value_heads": heads} | ({"head_dim": head_dim} if head_dim else {})


AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True}
FP8 = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic"}
FP8_BLOCKS = FP8 | {"weight_block_size": [128, 128]}
W4A16 = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128},
        }
    },
}
W8A8 = {
    "quant_method": "compressed-tensors",
    "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {"weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}
    },
}
NVFP4 = {
    "quant_method": "compressed-tensors",
    "format": "nvfp4-pack-quantized",
    "ignore": ["lm_head"],
    "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "float", "group_size": 16}}},
}
MXFP4 = {
    "quant_method": "mxfp4",
    "modules_to_not_convert": [
        "model.layers.*.self_attn",
        "model.layers.*.mlp.router",
        "model.embed_tokens",
        "lm_head",
    ],
}

QWEN25_14B = config(
    48, 5120, 40, 13824, 152064, **kv(8), max_position_embeddings=131072, model_type="qwen2"
)
QWEN3_14B = config(
    40, 5120, 40, 17408, 151936, **kv(8, 128), max_position_embeddings=40960, model_type="qwen3"
)
QWEN15_14B = config(40, 5120, 40, 13696, 152064, **kv(40), max_position_embeddings=32768)
QWEN3_4B = config(36, 2560, 32, 9728, 151936, **kv(8, 128)) | {"tie_word_embeddings": True}
LLAMA3_8B = config(32, 4096, 32, 14336, 128256, **kv(8))
LLAMA31_70B = config(80, 8192, 64, 28672, 128256, **kv(8))
LLAMA2_7B = config(32, 4096, 32, 11008, 32000)
GEMMA2_9B = config(
    42, 3584, 16, 14336, 256000, **kv(8, 256), model_type="gemma2", sliding_window=4096
)
del GEMMA2_9B["tie_word_embeddings"]
QWEN2_72B = config(80, 8192, 64, 29568, 152064, **kv(8))
MIXTRAL_8X7B = config(32, 4096, 32, 14336, 32000, **kv(8), num_local_experts=8)
QWEN2_57B_A14B = config(
    28,
    3584,
    28,
    18944,
    151936,
    **kv(4),
    num_experts=64,
    moe_intermediate_size=2560,
    shared_expert_intermediate_size=20480,
    decoder_sparse_step=1,
    mlp_only_layers=[],
)
QWEN3_30B_A3B = config(
    48,
    2048,
    32,
    6144,
    151936,
    **kv(4, 128),
    num_experts=128,
    moe_intermediate_size=768,
    decoder_sparse_step=1,
    mlp_only_layers=[],
)
QWEN3_235B_A22B = config(
    94, 4096, 64, 12288, 151936, **kv(4, 128), num_experts=128, moe_intermediate_size=1536
)
DEEPSEEK_V2_LITE = config(
    27,
    2048,
    16,
    10944,
    102400,
    **kv(16),
    model_type="deepseek_v2",
    q_lora_rank=None,
    kv_lora_rank=512,
    qk_nope_head_dim=128,
    qk_rope_head_dim=64,
    v_head_dim=128,
    n_routed_experts=64,
    n_shared_experts=2,
    moe_intermediate_size=1408,
    first_k_dense_replace=1,
    moe_layer_freq=1,
)
DEEPSEEK_V3 = config(
    61,
    7168,
    128,
    18432,
    129280,
    **kv(128),
    model_type="deepseek_v3",
    q_lora_rank=1536,
    kv_lora_rank=512,
    qk_nope_head_dim=128,
    qk_rope_head_dim=64,
    v_head_dim=128,
    n_routed_experts=256,
    n_shared_experts=1,
    moe_intermediate_size=2048,
    first_k_dense_replace=3,
    moe_layer_freq=1,
    max_position_embeddings=163840,
    quantization_config=FP8_BLOCKS,
)
LLAMA4_SCOUT = {
    "model_type": "llama4",
    "text_config": config(
        48,
        5120,
        40,
        8192,
        202048,
        **kv(8, 128),
        num_local_experts=16,
        intermediate_size_mlp=16384,
        interleave_moe_layer_step=1,
        n_shared_experts=1,
    ),
    "vision_config": {"num_hidden_layers": 34, "hidden_size": 1408, "intermediate_size": 5632},
}
GPT_OSS_120B = config(
    36,
    2880,
    64,
    2880,
    201088,
    **kv(8, 64),
    num_local_experts=128,
    model_type="gpt_oss",
    sliding_window=128,
    quantization_config=MXFP4,
)
GPT_OSS_20B = GPT_OSS_120B | {"num_hidden_layers": 24, "num_local_experts": 32}
QWEN25_VL_7B = {
    "text_config": config(28, 3584, 28, 18944, 152064, **kv(4), max_position_embeddings=128000),
    "vision_config": {"depth": 32, "hidden_size": 1280, "intermediate_size": 3420},
    "quantization_config": None,
    "torch_dtype": "bfloat16",
}
