"""What is known of the engines of one spec: values, and how they are read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer

_VERSION = 1


class NoFacts(Exception):
    """The engine told nothing of itself that can be relied on."""


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """Equal for all replicas of one spec. Limits in tokens, see `node.engine_facts`.

    `scale_out`: it renders, generates and derenders for who has its key. `reasoning`: its usage
    tells how many tokens were reasoning.
    """

    tokenizer: Tokenizer
    parser: bool
    scale_out: bool
    reasoning: bool
    fingerprint: str | None
    max_model_len: int
    max_tokens: int | None
    most_tokens: int | None
    always_usage: bool
    penalties: bool


def facts_of(document: bytes, tokenizer: bytes) -> EngineFacts:
    """Raises `NoFacts`. Takes up to a second for a large vocabulary."""
    try:
        told: dict[str, Any] = json.loads(document)
        if (told["v"], told["tokenizer"]) != (_VERSION, True):
            told = {}
        return EngineFacts(
            tokenizer=Tokenizer.from_str(tokenizer.decode()),
            parser=told["parser"],
            # Engines that began under an older version do not tell these.
            scale_out=told.get("scale_out", False),
            reasoning=told.get("reasoning", False),
            fingerprint=told.get("fingerprint"),
            max_model_len=int(told["max_model_len"]),
            max_tokens=told["max_tokens"],
            most_tokens=told["most_tokens"],
            always_usage=told["always_usage"],
            penalties=told["penalties"],
        )
    except Exception as bad:  # the tokenizers library raises nothing more precise
        raise NoFacts(f"what it told cannot be read: {bad}") from bad
