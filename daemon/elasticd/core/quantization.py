"""How a checkpoint's weights are packed: bytes of one weight, and what must stay together."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

# One byte a weight, and about one percent of scales beside it.
_EIGHT_BITS = 1.01


@dataclass(frozen=True, slots=True)
class Quantization:
    """`group`: a GPU's share of a width must be a multiple of it; 0: any share will do.

    `attention` and `dense`: whether these layers are packed too; experts always are.
    """

    method: str
    bytes_per_weight: float
    group: int = 0
    attention: bool = True
    dense: bool = True


def read_quantization(
    told: Mapping[str, Any] | None, layers: int, *, measured: bool
) -> Quantization | None:
    """What `quantization_config` says; `None` without one.

    Raises `ValueError` for a packing that is not known, unless the weights were `measured`: then
    only the way it divides is missing, and that the engine itself will say.
    """
    if told is None:
        return None
    method = str(told.get("quant_method") or "").lower().replace("_", "-")
    packing = _packing(method, told)
    if packing is None:
        if not measured:
            raise ValueError(
                f"config.json: the size of weights quantised by {method or 'an unnamed method'} "
                f"is not known; the weight files are needed to tell"
            )
        packing = (_EIGHT_BITS, 0)
    left_out = _left_out(told)
    return Quantization(
        method=method,
        bytes_per_weight=packing[0],
        group=packing[1],
        attention=not _covers(left_out, layers, "self_attn.o_proj"),
        dense=not _covers(left_out, layers, "mlp.down_proj", "mlp.shared_experts.down_proj"),
    )


def in_flight(option: str) -> Quantization | None:
    """What the engine packs itself as it loads, by its option `quantization`."""
    match option.lower().replace("_", "-"):
        case "fp8" | "fp8-per-tensor" | "fp8-per-block" | "ptpc-fp8":
            return Quantization("fp8", _EIGHT_BITS)
        case "bitsandbytes":
            return Quantization("bitsandbytes", four_bits(64))
        case "experts-int8":
            return Quantization("experts_int8", _EIGHT_BITS, attention=False, dense=False)
    return None


def four_bits(group: int) -> float:
    """Bytes of one 4-bit weight with a scale and a zero point for each `group`."""
    return _bits(4, group)


def _bits(bits: int, group: int) -> float:
    return bits / 8 + (4 / group if group > 0 else 0.01)


def _packing(method: str, told: Mapping[str, Any]) -> tuple[float, int] | None:
    """Bytes per weight and group; `None` when the method is not known."""
    match method:
        case "mxfp4":
            return 0.5 + 1 / 32, 0  # the engine pads its experts
        case "fp8" | "fbgemm-fp8":
            block = told.get("weight_block_size")
            return _EIGHT_BITS, _first(block)
        case "bitsandbytes":
            return (four_bits(64) if told.get("load_in_4bit") else _EIGHT_BITS), 0
        case "compressed-tensors":
            return _compressed_tensors(told)
        case "modelopt" | "modelopt-fp4" | "":
            return _modelopt(told)
    bits = _whole(told.get("bits") or told.get("w_bit") or told.get("weight_bits"))
    if bits not in range(1, 17):
        return None
    group = _whole(told.get("group_size") or told.get("q_group_size"))
    return _bits(bits, group), max(group, 0)


def _compressed_tensors(told: Mapping[str, Any]) -> tuple[float, int] | None:
    groups = told.get("config_groups")
    if not isinstance(groups, Mapping):
        return None
    packings = []
    for group in groups.values():
        weights = group.get("weights") if isinstance(group, Mapping) else None
        if not isinstance(weights, Mapping) or _whole(weights.get("num_bits")) <= 0:
            return None
        packings.append(_one_group(weights))
    # With several schemes in one checkpoint the widest is the safe side.
    return max(packings, default=None)


def _one_group(weights: Mapping[str, Any]) -> tuple[float, int]:
    bits, size = _whole(weights["num_bits"]), max(_whole(weights.get("group_size")), 0)
    if weights.get("type") == "float":
        block = weights.get("block_structure")
        return (_EIGHT_BITS, _first(block)) if bits == 8 else (bits / 8 + 1 / 16, 0)
    return _bits(bits, size), size


def _modelopt(told: Mapping[str, Any]) -> tuple[float, int] | None:
    inner = told.get("quantization")
    algorithm = told.get("quant_algo") or (
        inner.get("quant_algo") if isinstance(inner, Mapping) else None
    )
    match str(algorithm or "").upper():
        case "NVFP4":
            return 0.5 + 1 / 16, 0
        case name if name.startswith("FP8"):
            return _EIGHT_BITS, 0
    return None


def _left_out(told: Mapping[str, Any]) -> tuple[str, ...]:
    for name in ("modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules"):
        value = told.get(name)
        if isinstance(value, list):
            return tuple(str(part) for part in value)
    return ()


def _covers(patterns: Iterable[str], layers: int, *modules: str) -> bool:
    """Whether a typical layer's modules are left unpacked: some in the middle of the model."""
    names = [f"model.layers.{layers // 2}.{module}" for module in modules]
    return any(_matches(pattern, name) for pattern in patterns for name in names)


def _matches(pattern: str, name: str) -> bool:
    if pattern.startswith("re:"):
        try:
            return re.match(pattern[3:], name) is not None
        except re.error:
            return False
    if "*" in pattern:
        return fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(name, pattern + ".*")
    return f".{pattern}." in f".{name}."


def _first(block: Any) -> int:
    return max(_whole(block[0]), 0) if isinstance(block, list) and block else 0


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
