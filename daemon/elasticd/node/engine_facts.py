"""What the gateway must know of an engine to go on with its answers elsewhere.

Standard library only. Read from the objects of the running vLLM server rather than from files, so
that it is what this server really does: its tokenizer with every added token, its parsers, its
defaults. The attributes are vLLM's own and may change with its version: whatever is not as expected
makes the whole unknown, and an engine without facts is one whose answers are not continued.
"""

from __future__ import annotations

import json
from collections.abc import MutableMapping
from typing import Any

FACTS_PATH = "/elasticd/engine"
TOKENIZER_PATH = "/elasticd/tokenizer"

VERSION = 1
"""Of the document; grows where a reader of an older one would be wrong."""


def read_facts(scope: MutableMapping[str, Any]) -> bytes | None:
    """The document for `FACTS_PATH`, JSON; `None` where this engine is not as expected.

    Limits in tokens: `max_tokens` is what a request gets that asks for no limit, `most_tokens` what
    none may pass, both `null` if the server has no such limit. `parser`: a reasoning or tool parser
    is on every chat stream. `penalties`: the server counts repetitions in the answer alone, also
    where a request does not ask for it. `scale_out`: it renders, generates and derenders.
    `reasoning`: it tells how many tokens were reasoning. `fingerprint`: the server's, or `null`.
    """
    try:
        state = scope["app"].state
        chat = state.openai_serving_chat
        usual = chat.default_sampling_params
        document = {
            "v": VERSION,
            "tokenizer": type(_tokenizer(scope)).__name__ == "Tokenizer",
            "parser": chat.parser_cls is not None,
            "scale_out": bool(getattr(state.args, "enable_scale_out", False)),
            "reasoning": bool(getattr(chat, "_include_reasoning_tokens_details", False)),
            "fingerprint": getattr(chat, "system_fingerprint", None),
            "max_model_len": int(chat.model_config.max_model_len),
            "max_tokens": usual.get("max_tokens"),
            "most_tokens": chat.override_max_tokens,
            "penalties": bool(usual.get("presence_penalty") or usual.get("frequency_penalty")),
            "always_usage": bool(chat.enable_force_include_usage),
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    return json.dumps(document).encode()


def read_tokenizer(scope: MutableMapping[str, Any]) -> bytes | None:
    """The tokenizer as it is in use, in the JSON of the `tokenizers` library. Takes up to a second
    for a large vocabulary."""
    try:
        text: str = _tokenizer(scope).to_str()
    except (AttributeError, KeyError, TypeError):
        return None
    return text.encode()


def _tokenizer(scope: MutableMapping[str, Any]) -> Any:
    return scope["app"].state.openai_serving_chat.renderer.tokenizer._tokenizer
