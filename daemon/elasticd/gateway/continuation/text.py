"""Token ids to text, one by one, exactly as the engine does it.

The engine's own text is of no use after a loss: asked to go on after a prompt that ends inside a
character it repeats the whole prompt, and its stop strings do not reach back over the seam. So the
text of a continued answer is made here, by one decoding stream that has seen every id of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from elasticd.gateway.continuation.record import Unreadable

_INVALID_PREFIX = "Invalid prefix encountered"
"""The library's words for text that changed behind what it has given; vLLM starts afresh then."""


@dataclass(frozen=True, slots=True)
class Stops:
    """Strings that end an answer, looked for from the token after `min_tokens` on.

    `include`: the string stays in the text.
    """

    strings: tuple[str, ...] = ()
    include: bool = False
    min_tokens: int = 0

    @property
    def held_back(self) -> int:
        """Characters that may be the beginning of one, and are not shown yet."""
        longest = max(map(len, self.strings), default=0)
        return 0 if self.include or not longest else longest - 1


class OwnText:
    """One answer's text. `prompt`: ids; `emitted`: the ids so far, of which none ended it."""

    def __init__(
        self, tokenizer: Tokenizer, prompt: Sequence[int], emitted: Sequence[int], stops: Stops
    ) -> None:
        self._tokenizer = tokenizer
        self._stops = stops
        self._stream = DecodeStream(ids=list(prompt), skip_special_tokens=True)
        self._count = len(emitted)
        self.text = "".join(map(self._decoded, emitted))

    def shown(self, *, finished: bool) -> str:
        """What a client may have seen by now."""
        held = 0 if finished else self._stops.held_back
        return self.text[: len(self.text) - held] if held < len(self.text) else ""

    def add(self, token_id: int) -> str | None:
        """One more id; the stop string that ends the answer here, if one does."""
        new = self._decoded(token_id)
        self.text += new
        self._count += 1
        if not new or self._count <= self._stops.min_tokens:
            return None
        return self._stopped_by(len(new))

    def skip(self) -> None:
        """One more id that has no text: the token that ended the answer."""
        self._count += 1

    def _stopped_by(self, new: int) -> str | None:
        """The string that is complete first; of several the first in the request."""
        found: tuple[int, int, str] | None = None
        for string in self._stops.strings:
            at = self.text.find(string, max(0, len(self.text) + 1 - new - len(string)))
            if at >= 0 and (found is None or at + len(string) < found[1]):
                found = at, at + len(string), string
        if found is None:
            return None
        self.text = self.text[: found[1] if self._stops.include else found[0]]
        return found[2]

    def _decoded(self, token_id: int) -> str:
        try:
            return self._stream.step(self._tokenizer, token_id) or ""
        except (OverflowError, TypeError):
            return ""
        except Exception as failed:  # the library raises nothing more precise
            if not str(failed).startswith(_INVALID_PREFIX):
                raise Unreadable(f"its ids cannot be decoded: {failed}") from failed
            self._stream = DecodeStream(skip_special_tokens=True)
            return self._stream.step(self._tokenizer, token_id) or ""
