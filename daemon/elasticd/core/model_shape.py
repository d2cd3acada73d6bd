"""What a model's `config.json` says of its memory: heads, widths, parameters, quantisation.

Reads the mapping only; files are read elsewhere. What cannot be told from it is an error with a
sentence, never a guess of zero. Where layers differ (sliding window, linear attention) each counts
as full attention, which errs on the safe side.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from elasticd.core.model_layers import (
    Mlp,
    count,
    count_layers,
    latent_attention,
    maybe_count,
    plain_attention,
)
from elasticd.core.quantization import Quantization, read_quantization

_TIED_UNLESS_SAID = ("gemma", "cohere")
_TEXT_PARTS = ("text_config", "llm_config", "language_config")
_DTYPE_BYTES = {"float32": 4, "float": 4, "float8_e4m3fn": 1}
_POSITIONS = (
    *("max_position_embeddings", "n_positions", "max_seq_len", "seq_length"),
    *("model_max_length", "max_sequence_length", "max_seq_length", "seq_len"),
)
# With these the longest context in `config.json` is meant as it stands.
_ALREADY_SCALED = frozenset(
    [
        *("default", "mrope", "su", "longrope", "llama3"),
        *("yarn", "deepseek_yarn", "deepseek_llama_scaling"),
    ]
)


@dataclass(frozen=True, slots=True)
class Parameters:
    """Counts of parameters, by how tensor parallelism and quantisation treat them.

    `attention`, `dense` (MLPs and shared experts) and `experts` are divided among the GPUs and may
    be quantised; `key_value` is the part of `attention` that is repeated when there are more GPUs
    than key-value heads. `plain` (embeddings, output head, vision) is divided and never quantised;
    `replicated` (norms, routers, latent down-projections) is whole on every GPU.
    """

    attention: int
    key_value: int
    dense: int
    experts: int
    plain: int
    replicated: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.attention + self.dense + self.experts + self.plain + self.replicated


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A model as far as memory depends on it.

    `latent`: elements kept per token and layer by multi-head latent attention; 0: plain heads.
    `widths`: the MLP widths that are split among GPUs. `dtype_bytes`: of one unquantised weight, as
    stored. `max_positions`: the longest context in tokens, if told. `weight_bytes`: measured size
    of the weight files; without it sizes are computed from `parameters`.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    widths: tuple[int, ...]
    parameters: Parameters
    latent: int = 0
    dtype_bytes: int = 2
    quantization: Quantization | None = None
    max_positions: int | None = None
    weight_bytes: int | None = None


def read_shape(config: Mapping[str, Any], weight_bytes: int | None = None) -> ModelShape:
    """The shape that `config.json` describes. Raises `ValueError` with a sentence for people."""
    if weight_bytes is not None and weight_bytes <= 0:
        raise ValueError(f"weights of {weight_bytes} bytes are no weights")
    text = _text_part(config)
    if "compress_ratios" in text:
        raise ValueError("config.json has compress_ratios: the cache of this model is not known")
    layers, hidden = count_layers(text), count(text, "hidden_size")
    heads, vocab = count(text, "num_attention_heads"), count(text, "vocab_size")
    attention = latent_attention(text, hidden, heads) or plain_attention(text, hidden, heads)
    mlp = Mlp.of(text, layers, hidden)
    tied = _tied(config, text)
    return ModelShape(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=attention.kv_heads,
        head_dim=attention.head_dim,
        vocab=vocab,
        widths=mlp.widths,
        parameters=Parameters(
            attention=layers * attention.divided,
            key_value=layers * attention.key_value,
            dense=mlp.dense,
            experts=mlp.experts,
            plain=vocab * hidden * (1 if tied else 2) + _vision(config),
            replicated=layers * (attention.replicated + 2 * hidden) + mlp.routers + hidden,
        ),
        latent=attention.latent,
        dtype_bytes=_dtype_bytes(config, text),
        quantization=read_quantization(
            _quantization_part(config, text), layers, measured=weight_bytes is not None
        ),
        max_positions=_positions(text),
        weight_bytes=weight_bytes,
    )


def _text_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The language model's own section of a multimodal configuration."""
    part: Mapping[str, Any] = config
    thinker = config.get("thinker_config")
    if isinstance(thinker, Mapping):
        part = thinker
    for name in _TEXT_PARTS:
        inner = part.get(name)
        if isinstance(inner, Mapping) and "num_hidden_layers" in inner:
            return inner
    return part


def _tied(config: Mapping[str, Any], text: Mapping[str, Any]) -> bool:
    """Whether the output head is the embedding. Not told: two matrices, the safe side."""
    for part in (text, config):
        if isinstance(part.get("tie_word_embeddings"), bool):
            return bool(part["tie_word_embeddings"])
    return str(text.get("model_type", "")).startswith(_TIED_UNLESS_SAID)


def _vision(config: Mapping[str, Any]) -> int:
    """Parameters of a vision tower, roughly: it is a small part of the whole."""
    vision = config.get("vision_config")
    if not isinstance(vision, Mapping):
        return 0
    depth = maybe_count(vision, "depth", "num_hidden_layers") or 0
    hidden = maybe_count(vision, "embed_dim", "hidden_size") or 0
    width = maybe_count(vision, "intermediate_size") or 4 * hidden
    return depth * (4 * hidden * hidden + 3 * hidden * width)


def _dtype_bytes(config: Mapping[str, Any], text: Mapping[str, Any]) -> int:
    for part in (config, text):
        told = part.get("dtype") or part.get("torch_dtype")
        if isinstance(told, str):
            return _DTYPE_BYTES.get(told.removeprefix("torch."), 2)
    return 2


def _quantization_part(
    config: Mapping[str, Any], text: Mapping[str, Any]
) -> Mapping[str, Any] | None:
    for part in (config, text):
        for name in ("quantization_config", "compression_config"):
            told = part.get(name)
            if told:
                return told if isinstance(told, Mapping) else {}
    return None


def _positions(text: Mapping[str, Any]) -> int | None:
    told = [value for name in _POSITIONS if (value := maybe_count(text, name)) is not None]
    if not told:
        return None
    rope = text.get("rope_parameters") or text.get("rope_scaling")
    if not isinstance(rope, Mapping) or str(text.get("model_type", "")).startswith("gemma3"):
        return min(told)
    kind, factor = rope.get("rope_type") or rope.get("type") or "default", rope.get("factor")
    if str(kind) in _ALREADY_SCALED or not isinstance(factor, int | float) or not 1 < factor < 1e6:
        return min(told)
    return int(min(told) * factor)
