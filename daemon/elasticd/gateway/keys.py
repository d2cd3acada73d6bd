"""Who asks: bearer keys against their hashes, and how much each key has under way.

Keys are never kept, logged or passed on to engines.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass

from elasticd.gateway.config import ApiKey
from elasticd.gateway.errors import key_busy, no_key, wrong_key


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody who may ask. Without API keys everybody is the one caller without a name."""

    name: str = ""
    max_priority: int = 9
    max_ongoing: int | None = None


_ANYBODY = Caller()


class KeyRing:
    """The keys in force and the requests that each has under way."""

    def __init__(self, keys: Sequence[ApiKey] = ()) -> None:
        self._ongoing: dict[str, int] = {}
        self.replace(keys)

    def replace(self, keys: Sequence[ApiKey]) -> None:
        """Puts other keys in force. What runs goes on and still counts for its name."""
        self._callers = [
            (key.sha256_hex, Caller(key.name, key.max_priority, key.max_ongoing_requests))
            for key in keys
        ]

    def caller(self, authorization: str | None) -> Caller:
        """Who sent this `Authorization` header. Raises `ApiError` 401 for strangers."""
        if not self._callers:
            return _ANYBODY
        scheme, _, key = (authorization or "").strip().partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            raise no_key()
        shown = hash_of(key.strip())
        found: Caller | None = None
        # Every hash is compared, each in constant time: how long it takes tells nothing.
        for known, caller in self._callers:
            if hmac.compare_digest(known, shown):
                found = caller
        if found is None:
            raise wrong_key()
        return found

    def begin(self, caller: Caller) -> None:
        """Counts one request, until `end`. Raises `ApiError` 429 above the key's limit."""
        running = self._ongoing.get(caller.name, 0)
        if caller.max_ongoing is not None and running >= caller.max_ongoing:
            raise key_busy(caller.name, caller.max_ongoing)
        self._ongoing[caller.name] = running + 1

    def end(self, caller: Caller) -> None:
        """A request that has begun is over, however it ended."""
        left = self._ongoing[caller.name] - 1
        if left:
            self._ongoing[caller.name] = left
        else:
            del self._ongoing[caller.name]


def hash_of(key: str) -> str:
    """What the configuration holds of a key, without its `sha256:`."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()
