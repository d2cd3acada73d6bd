"""What became of the calls to one provider, for people."""

from __future__ import annotations

from collections import Counter
from typing import Any

from elasticd.provider import InstanceNotFound, ProviderError
from elasticd.runtime.ports import Clock


class CallRecord:
    """Counts by operation and outcome (`ok` or the error's class name) since the start."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._calls: dict[str, Counter[str]] = {}
        self._last_ok: dict[str, float] = {}
        self._last_error: dict[str, Any] | None = None

    def worked(self, operation: str) -> None:
        """The provider did as asked."""
        self._calls.setdefault(operation, Counter())["ok"] += 1
        self._last_ok[operation] = self._clock.now()

    def failed(self, operation: str, error: ProviderError) -> None:
        """The provider did not. "Not found" is counted but is an answer, not a failure."""
        name = type(error).__name__
        self._calls.setdefault(operation, Counter())[name] += 1
        if isinstance(error, InstanceNotFound):
            self._last_ok[operation] = self._clock.now()
            return
        self._last_error = {
            "at": self._clock.now(),
            "operation": operation,
            "error": name,
            "message": str(error),
        }

    def summary(self) -> dict[str, Any]:
        """JSON-able; ages in seconds."""
        now = self._clock.now()
        last_error = self._last_error
        return {
            "calls": {operation: dict(counts) for operation, counts in self._calls.items()},
            "ok_age": {operation: now - at for operation, at in self._last_ok.items()},
            "last_error": None
            if last_error is None
            else {**last_error, "age": now - last_error["at"]},
        }
