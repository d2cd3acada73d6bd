"""One layer's attention and all layers' MLPs, counted from `config.json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Of these the engine keeps the compressed latent; of others with `kv_lora_rank` whole heads.
_LATENT = frozenset(
    [
        *("deepseek_v2", "deepseek_v3", "deepseek_v32", "deepseek_mtp", "kimi_k2", "kimi_linear"),
        *("axk1", "bailing_hybrid", "dots3_note", "glm4_moe_lite", "glm_moe_dsa"),
        "pangu_ultra_moe",
    ]
)


_MOST = 10**9
_MOST_LAYERS = 10**4


def count_layers(config: Mapping[str, Any]) -> int:
    """How many layers; a number that no model has is refused, for each layer is looked at."""
    layers = count(config, "num_hidden_layers")
    if layers > _MOST_LAYERS:
        raise ValueError(f"config.json: num_hidden_layers cannot be {layers}")
    return layers


def count(config: Mapping[str, Any], *names: str) -> int:
    """A whole number above zero. Raises `ValueError` when it is missing or something else."""
    found = maybe_count(config, *names)
    if found is None:
        raise ValueError(f"config.json has no {names[0]}")
    return found


def maybe_count(config: Mapping[str, Any], *names: str) -> int | None:
    """The first of `names` that is there; zero and null count as not there."""
    for name in names:
        value = config.get(name)
        if value is None or value == 0:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ValueError(f"config.json: {name} must be a whole number, not {value!r}")
        if value > _MOST:
            raise ValueError(f"config.json: {name} cannot be {value}")
        return value
    return None


@dataclass(frozen=True, slots=True)
class Attention:
    """Parameters of one layer's attention, and what it keeps of a token."""

    kv_heads: int
    head_dim: int
    divided: int
    key_value: int
    replicated: int = 0
    latent: int = 0


def plain_attention(text: Mapping[str, Any], hidden: int, heads: int) -> Attention:
    kv_heads = maybe_count(text, "num_key_value_heads", "num_kv_heads", "n_head_kv") or heads
    head_dim = maybe_count(text, "head_dim") or hidden // heads
    if head_dim == 0:
        raise ValueError(f"config.json: {heads} attention heads do not fit hidden_size {hidden}")
    key_value = 2 * hidden * kv_heads * head_dim
    divided = 2 * hidden * heads * head_dim + key_value
    return Attention(kv_heads, head_dim, divided=divided, key_value=key_value)


def latent_attention(text: Mapping[str, Any], hidden: int, heads: int) -> Attention | None:
    rank = maybe_count(text, "kv_lora_rank")
    if rank is None:
        return None
    rope, nope = count(text, "qk_rope_head_dim"), count(text, "qk_nope_head_dim")
    value, query_rank = count(text, "v_head_dim"), maybe_count(text, "q_lora_rank")
    query = (query_rank or hidden) * heads * (nope + rope)
    up, out = rank * heads * (nope + value), heads * value * hidden
    return Attention(
        kv_heads=heads,
        head_dim=nope + rope,
        divided=query + up + out,
        key_value=0,
        replicated=hidden * (rank + rope) + hidden * (query_rank or 0),
        latent=rank + rope if str(text.get("model_type")) in _LATENT else 0,
    )


@dataclass(frozen=True, slots=True)
class Mlp:
    """Parameters of all layers behind the attention. Gated MLPs have three matrices."""

    dense: int
    experts: int
    routers: int
    widths: tuple[int, ...]

    @classmethod
    def of(cls, text: Mapping[str, Any], layers: int, hidden: int) -> Mlp:
        experts = maybe_count(text, "num_experts", "n_routed_experts", "num_local_experts") or 0
        if experts == 0:
            width = count(text, "intermediate_size")
            return cls(layers * 3 * hidden * width, 0, 0, (width,))
        width = count(text, "moe_intermediate_size", "intermediate_size")
        sparse = sum(1 for layer in range(layers) if _is_sparse(text, layer))
        shared = maybe_count(text, "shared_expert_intermediate_size") or width * (
            maybe_count(text, "n_shared_experts", "num_shared_experts") or 0
        )
        wide = 0
        if sparse < layers:
            wide = count(text, "intermediate_size_mlp", "intermediate_size")
        dense = 3 * hidden * (sparse * shared + (layers - sparse) * wide)
        return cls(
            dense=dense,
            experts=sparse * experts * 3 * hidden * width,
            routers=sparse * hidden * experts,
            widths=tuple(sorted({width, shared, wide} - {0})),
        )


def _is_sparse(text: Mapping[str, Any], layer: int) -> bool:
    """Whether a layer of a mixture of experts has experts at all."""
    if layer < (maybe_count(text, "first_k_dense_replace") or 0):
        return False
    dense = text.get("mlp_only_layers")
    if isinstance(dense, list) and layer in dense:
        return False
    chosen = text.get("moe_layers")
    if isinstance(chosen, list):
        return layer in chosen
    frequency = text.get("moe_layer_freq")
    if isinstance(frequency, list):
        return layer < len(frequency) and bool(frequency[layer])
    if isinstance(frequency, int) and frequency > 1:
        return layer % frequency == 0
    step = maybe_count(text, "decoder_sparse_step", "interleave_moe_layer_step") or 1
    return (layer + 1) % step == 0
