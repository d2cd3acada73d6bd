"""What is known of the engines of one spec: values, and how they are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tokenizers import Tokenizer

from elasticd.json_fields import Fields
from elasticd.weights.foreign import read_json

_VERSION = 1


class NoFacts(Exception):
    """The engine told nothing of itself that can be relied on."""


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """Equal for all replicas of one spec. Limits in tokens, see `node.engine_facts`.

    `vocabulary`: no id is as great. `scale_out`: it renders, generates and derenders for who has
    its key. `reasoning`: its usage tells how many tokens were reasoning.
    """

    tokenizer: Tokenizer
    vocabulary: int
    parser: bool
    scale_out: bool
    reasoning: bool
    fingerprint: str | None
    max_model_len: int
    max_tokens: int | None
    most_tokens: int | None
    always_usage: bool
    penalties: bool

    def budget(self, asked: int | None, prompt: int) -> int:
        """Tokens of an answer at most, after a prompt of so many, as the engine counts them."""
        limits = (
            self.max_model_len - prompt,
            self.max_tokens if asked is None else asked,
            self.most_tokens,
        )
        return min(limit for limit in limits if limit is not None)


def facts_of(document: bytes, tokenizer: bytes) -> EngineFacts:
    """Raises `NoFacts`. Takes up to a second for a large vocabulary."""
    try:
        told = Fields(read_json(document))
        if (version := told.whole("v")) != _VERSION:
            raise NoFacts(f"its facts are of version {version}, known is version {_VERSION}")
        if not told.flag("tokenizer"):
            raise NoFacts("its tokenizer is of another kind")
        known = _tokenizer(tokenizer)
        return EngineFacts(
            tokenizer=known,
            vocabulary=_vocabulary(known),
            parser=told.flag("parser"),
            # Engines that began under an older version do not tell these.
            scale_out=told.flag("scale_out", default=False),
            reasoning=told.flag("reasoning", default=False),
            fingerprint=told.maybe("fingerprint", told.text),
            max_model_len=told.whole("max_model_len", least=1),
            max_tokens=told.maybe("max_tokens", _limit_of(told)),
            most_tokens=told.maybe("most_tokens", _limit_of(told)),
            always_usage=told.flag("always_usage"),
            penalties=told.flag("penalties"),
        )
    except ValueError as bad:
        raise NoFacts(f"what it told cannot be read: {bad}") from bad


def _limit_of(told: Fields) -> Callable[[str], int]:
    return partial(told.whole, least=1)


def _tokenizer(told: bytes) -> Tokenizer:
    try:
        return Tokenizer.from_str(told.decode())
    except Exception as bad:  # the library raises nothing more precise
        raise NoFacts(f"its tokenizer cannot be read: {bad}") from bad


_PADDING = 4096
"""Models have more ids than their tokenizers, which no text belongs to: sizes are rounded up."""


def _vocabulary(tokenizer: Tokenizer) -> int:
    """Ids are counted without gaps, but for those that were added later."""
    last = max(tokenizer.get_added_tokens_decoder(), default=0)
    return max(tokenizer.get_vocab_size(), last + 1) + _PADDING
