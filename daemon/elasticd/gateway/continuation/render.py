"""What a replica's rendering of a request says: whether it may be gone on with, and how."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from elasticd.gateway.continuation.record import Unreadable

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


def generate_body(data: bytes, prompt: Sequence[int], emitted: Sequence[int]) -> bytes | None:
    """The body that has the answer generated after its `emitted` ids; `None`: it has as many as it
    may have.

    Made of the rendering alone: the engine takes unknown names without a word. Raises `Unreadable`
    where the rendering is another prompt, or has what does not go on exactly.
    """
    try:
        rendered = json.loads(data)
        sampling = rendered["sampling_params"]
        if rendered["token_ids"] != [*prompt]:
            raise Unreadable("the same request is another prompt there")
        left = sampling["max_tokens"] - len(emitted)
        least = max(0, (sampling.get("min_tokens") or 0) - len(emitted))
    except (ValueError, KeyError, TypeError, AttributeError) as bad:
        raise Unreadable(f"its rendering is not as expected: {bad!r}") from bad
    for name, usual in _AS_USUAL.items():
        if sampling.get(name) not in usual:
            raise Unreadable(f"`{name}` is set where it was rendered")
    if sampling.get("ignore_eos") and sampling.get("skip_special_tokens", True):
        raise Unreadable("`ignore_eos` is set, and tokens without text are not shown to its parser")
    if left <= 0:
        return None
    rendered |= {"token_ids": [*prompt, *emitted], "stream": True, "stream_options": None}
    rendered["sampling_params"] = {**sampling, "max_tokens": left, "min_tokens": least}
    return json.dumps(rendered, separators=(",", ":")).encode()
