"""What a replica's rendering of a request says: whether it may be gone on with, and how."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from elasticd.gateway.continuation.kept import Broken
from elasticd.gateway.continuation.record import Unreadable
from elasticd.json_fields import Fields
from elasticd.weights.foreign import read_json

_AS_USUAL: dict[str, tuple[Any, ...]] = {
    "n": (None, 1),
    "stop": (None, [], ""),
    "presence_penalty": (None, 0),
    "frequency_penalty": (None, 0),
    "structured_outputs": (None,),
    "bad_words": (None, []),
    "logprobs": (None,),
    "prompt_logprobs": (None,),
    "thinking_token_budget": (None,),
    "repetition_detection": (None,),
    "watermarking": (None, False),
}
"""Sampling parameters, also those that the server sets by itself or makes of tools: what goes on
exactly has them at one of these values."""


def generate_body(
    data: bytes, prompt: Sequence[int], emitted: Sequence[int], most: int
) -> tuple[bytes | None, int]:
    """The body that has the answer generated after its `emitted` ids, and how many more there may
    be of at most `most` in all; `None`: it has them.

    Made of the rendering alone: the engine takes unknown names without a word. Raises `Unreadable`
    where the rendering is another prompt, or has what does not go on exactly, and `Broken` where it
    is none.
    """
    rendered, sampling, limit, least = _read(data)
    if rendered["token_ids"] != [*prompt]:
        raise Unreadable("the same request is another prompt there")
    for name, usual in _AS_USUAL.items():
        if sampling.get(name) not in usual:
            raise Unreadable(f"`{name}` is set where it was rendered")
    if sampling.get("ignore_eos") and sampling.get("skip_special_tokens", True):
        raise Unreadable("`ignore_eos` is set, and tokens without text are not shown to its parser")
    left, least = min(limit, most) - len(emitted), max(0, least - len(emitted))
    if left <= 0:
        return None, 0
    rendered |= {"token_ids": [*prompt, *emitted], "stream": True, "stream_options": None}
    rendered["sampling_params"] = {**sampling, "max_tokens": left, "min_tokens": least}
    return json.dumps(rendered, separators=(",", ":")).encode(), left


def _read(data: bytes) -> tuple[dict[str, Any], dict[str, Any], int, int]:
    """The rendering, its sampling parameters, and how many tokens these allow and demand. Raises
    `Broken`."""
    try:
        rendered = read_json(data)
        sampling = rendered["sampling_params"]
        limits = Fields(sampling, "sampling_params")
        if not isinstance(rendered["token_ids"], list):
            raise Broken("its rendering has no ids")
        least = limits.maybe("min_tokens", limits.whole) or 0
        return rendered, sampling, limits.whole("max_tokens"), least
    except (ValueError, KeyError, TypeError) as bad:
        raise Broken(f"its rendering is not as expected: {bad!r:.300}") from bad
