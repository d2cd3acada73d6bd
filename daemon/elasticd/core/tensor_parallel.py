"""Among how many GPUs the engine can divide a model: heads, widths, vocabulary, packed groups."""

from __future__ import annotations

from elasticd.core.model_shape import ModelShape

_VOCABULARY_PADDING = 64


def tensor_parallel_sizes(shape: ModelShape, most: int) -> tuple[int, ...]:
    """The numbers of GPUs up to `most` among which the engine can divide the model."""
    return tuple(size for size in range(1, most + 1) if not why_not_parallel(shape, size))


def why_not_parallel(shape: ModelShape, size: int) -> str:
    """Why the model cannot be divided among `size` GPUs; empty if it can."""
    if shape.heads % size:
        return f"{shape.heads} attention heads cannot be divided among {size} GPUs"
    if not shape.latent and shape.kv_heads % size and size % shape.kv_heads:
        return f"{shape.kv_heads} key-value heads cannot be divided among {size} GPUs"
    for width in shape.widths:
        if width % size:
            return f"an MLP {width} wide cannot be divided among {size} GPUs"
    padded = -(-shape.vocab // _VOCABULARY_PADDING) * _VOCABULARY_PADDING
    if padded % size:
        return f"a vocabulary of {shape.vocab} cannot be divided among {size} GPUs"
    return _why_not_grouped(shape, size) if size > 1 else ""


def _why_not_grouped(shape: ModelShape, size: int) -> str:
    """Packed weights share scales in groups, and a group cannot be divided."""
    packed = shape.quantization
    if packed is None or not packed.group:
        return ""
    dense = shape.widths if packed.dense or shape.parameters.experts else ()
    attention = (shape.heads * shape.head_dim,) if packed.attention and not shape.latent else ()
    for width in (*dense, *attention):
        if (width // size) % packed.group:
            return (
                f"{packed.method} groups of {packed.group} weights do not divide "
                f"{width} / {size} GPUs"
            )
    return ""
