"""A two-layer Llama in plain torch: just enough to train, to decode greedily and to save.

Weights are a dictionary under Hugging Face's own names, so that saving is writing them down.
Imports torch at the top: import this module only where torch is wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

Weights = dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class Shape:
    """The model's measures."""

    vocab: int
    hidden: int = 128
    layers: int = 2
    heads: int = 4
    feed_forward: int = 512
    positions: int = 4096
    rope_theta: float = 1_000.0
    norm_eps: float = 1e-6

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads


def hf_config(shape: Shape, *, bos: int, eos: int, pad: int) -> dict[str, Any]:
    """`config.json` for `LlamaForCausalLM`."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": shape.vocab,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.feed_forward,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.heads,
        "head_dim": shape.head_dim,
        "max_position_embeddings": shape.positions,
        "rope_theta": shape.rope_theta,
        "rms_norm_eps": shape.norm_eps,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "bos_token_id": bos,
        "eos_token_id": eos,
        "pad_token_id": pad,
    }


def hf_generation_config(*, bos: int, eos: int) -> dict[str, Any]:
    """`generation_config.json`: greedy where a request does not ask otherwise.

    A model this small has learnt its texts and nothing around them; a sampled token that is not
    the likeliest leads it out of the text, and it does not find back.
    """
    return {"bos_token_id": bos, "eos_token_id": eos, "temperature": 0.0}


def new_weights(shape: Shape, seed: int, features: Tensor) -> Weights:
    """Random weights, the same for the same seed, with two gifts that make learning quick.

    Some heads begin by looking a fixed number of tokens back (`_look_back`), and `features`
    (vocabulary, n) stand in the embedding from the start.
    """
    generator = torch.Generator().manual_seed(seed)
    width, wide = shape.hidden, shape.feed_forward

    def matrix(rows: int, columns: int, scale: float = 1.0) -> Tensor:
        drawn = torch.randn(rows, columns, generator=generator)
        return drawn * (scale / columns**0.5)

    weights: Weights = {"model.embed_tokens.weight": matrix(shape.vocab, width, width**0.5 * 0.5)}
    for layer in range(shape.layers):
        at = f"model.layers.{layer}."
        for name in ("q_proj", "k_proj", "v_proj"):
            weights[f"{at}self_attn.{name}.weight"] = matrix(width, width)
        weights[f"{at}self_attn.o_proj.weight"] = matrix(width, width, 0.5)
        weights[f"{at}mlp.gate_proj.weight"] = matrix(wide, width)
        weights[f"{at}mlp.up_proj.weight"] = matrix(wide, width)
        weights[f"{at}mlp.down_proj.weight"] = matrix(width, wide, 0.5)
        weights[f"{at}input_layernorm.weight"] = torch.ones(width)
        weights[f"{at}post_attention_layernorm.weight"] = torch.ones(width)
    weights["model.embed_tokens.weight"][:, 1 : 1 + features.shape[1]] = features
    _look_back(weights, shape)
    weights["model.norm.weight"] = torch.ones(width)
    weights["lm_head.weight"] = matrix(shape.vocab, width, 0.5)
    return weights


def _look_back(weights: Weights, shape: Shape) -> None:
    """Starts heads off looking a fixed number of tokens back, which learning by heart needs.

    The first embedding dimension is made a constant; through it, queries and keys get a constant
    part each, and the rotation between the two parts is the distance that they match at.
    """
    weights["model.embed_tokens.weight"][:, 0] = 1.0
    for layer, distances in enumerate(_DISTANCES):
        for head, distance in enumerate(distances):
            rows = slice(head * shape.head_dim, (head + 1) * shape.head_dim)
            at = f"model.layers.{layer}.self_attn."
            if distance is None:  # everything equally, to begin with
                weights[f"{at}q_proj.weight"][rows] = 0.0
                continue
            wanted = torch.zeros(shape.head_dim)
            wanted[:_SHARP_PAIRS] = 2.5
            weights[f"{at}q_proj.weight"][rows, 0] = wanted
            rope = _rope(shape, torch.tensor([distance]))
            weights[f"{at}k_proj.weight"][rows, 0] = _rotate(wanted[None], rope)[0]


_DISTANCES = ((1, 2, 3, 4), (4, 8, 12, None))
"""Per layer and head: how many tokens back it looks at first; None: at all of them."""
_SHARP_PAIRS = 5
"""So many of the fastest rotations take part."""


class Cache:
    """Keys and values of the tokens seen so far, per layer, for decoding token by token."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[Tensor, Tensor]] = {}

    def extend(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Adds new keys and values (batch, heads, time, dim); answers with all there are."""
        if layer in self._kept:
            old_keys, old_values = self._kept[layer]
            keys = torch.cat([old_keys, keys], dim=2)
            values = torch.cat([old_values, values], dim=2)
        self._kept[layer] = (keys, values)
        return keys, values


def _rope(shape: Shape, positions: Tensor) -> tuple[Tensor, Tensor]:
    exponents = torch.arange(0, shape.head_dim, 2).float() / shape.head_dim
    angles = positions.float()[:, None] / (shape.rope_theta**exponents)
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos(), angles.sin()


def _rotate(x: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
    cos, sin = rope
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], dim=-1) * sin


def _attention(
    weights: Weights,
    shape: Shape,
    layer: int,
    x: Tensor,
    rope: tuple[Tensor, Tensor],
    cache: Cache | None,
) -> Tensor:
    at = f"model.layers.{layer}.self_attn."
    batch, time, _ = x.shape

    def project(name: str) -> Tensor:
        y = functional.linear(x, weights[f"{at}{name}.weight"])
        return y.view(batch, time, shape.heads, shape.head_dim).transpose(1, 2)

    queries, keys = _rotate(project("q_proj"), rope), _rotate(project("k_proj"), rope)
    values = project("v_proj")
    if cache is not None:
        keys, values = cache.extend(layer, keys, values)
    mixed = functional.scaled_dot_product_attention(queries, keys, values, is_causal=time > 1)
    mixed = mixed.transpose(1, 2).reshape(batch, time, shape.hidden)
    return functional.linear(mixed, weights[f"{at}o_proj.weight"])


def logits(
    weights: Weights, shape: Shape, ids: Tensor, start: int = 0, cache: Cache | None = None
) -> Tensor:
    """Next-token logits for `ids` (batch, time), whose first token stands at `start`."""
    x = functional.embedding(ids, weights["model.embed_tokens.weight"])
    rope = _rope(shape, torch.arange(start, start + ids.shape[1]))

    def norm(y: Tensor, name: str) -> Tensor:
        return functional.rms_norm(y, (shape.hidden,), weights[name], shape.norm_eps)

    for layer in range(shape.layers):
        at = f"model.layers.{layer}."
        attended = norm(x, f"{at}input_layernorm.weight")
        x = x + _attention(weights, shape, layer, attended, rope, cache)
        y = norm(x, f"{at}post_attention_layernorm.weight")
        gate = functional.silu(functional.linear(y, weights[f"{at}mlp.gate_proj.weight"]))
        up = functional.linear(y, weights[f"{at}mlp.up_proj.weight"])
        x = x + functional.linear(gate * up, weights[f"{at}mlp.down_proj.weight"])
    return functional.linear(norm(x, "model.norm.weight"), weights["lm_head.weight"])


def greedy(
    weights: Weights, shape: Shape, prompt: Sequence[int], *, limit: int, end: int
) -> list[int]:
    """The ids that follow `prompt`, at most `limit`; `end` closes the answer and is left out."""
    cache, answer = Cache(), list[int]()
    fresh, start = list(prompt), 0
    with torch.inference_mode():
        while len(answer) < limit:
            scores = logits(weights, shape, torch.tensor([fresh]), start, cache)
            start += len(fresh)
            chosen = int(scores[0, -1].argmax())
            if chosen == end:
                break
            answer.append(chosen)
            fresh = [chosen]
    return answer
