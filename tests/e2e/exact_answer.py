"""A stream of the stub engine as its client saw it, and whether it is exactly the right one."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field

from elasticd.gateway.continuation.seam import MARK

_TOKEN = b'"content":" t'


@dataclass
class Answer:
    """One stream as its client saw it. `moved_at`: when its first token after the seam came."""

    text: str
    replica: str = ""
    body: bytearray = field(default_factory=bytearray)
    moved_at: float = 0.0

    def take(self, data: bytes) -> None:
        self.body += data
        if not self.moved_at and b"data: " in self.body.partition(MARK)[2]:
            self.moved_at = time.monotonic()

    @property
    def before_seam(self) -> int:
        """Tokens that its first replica gave it."""
        return self.body.partition(MARK)[0].count(_TOKEN)

    @property
    def seams(self) -> int:
        return self.body.count(MARK)

    @property
    def tokens(self) -> int:
        return self.body.count(_TOKEN)

    @property
    def fault(self) -> str:
        """What is wrong with it; empty: nothing."""
        events = [e[6:] for e in bytes(self.body).split(b"\n\n") if e.startswith(b"data: ")]
        if events[-1:] != [b"[DONE]"] or events.count(b"[DONE]") != 1:
            return f"its end is {bytes(self.body[-200:])!r}"
        choices = [c for e in events[:-1] for c in json.loads(e).get("choices", ())]
        told = "".join(c["delta"].get("content", "") for c in choices)
        return "" if told == self.text else f"{told[-80:]!r} instead of {self.text[-80:]!r}"
