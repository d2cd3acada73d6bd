"""A call as it arrives, the record that is kept of it, and the answer that goes back."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from elasticd_providers.fake.faults import Operation

_REMEMBERED = 2000


@dataclass(frozen=True, slots=True)
class Call:
    """What a customer asks. `target` is a machine's id or name, where the operation has one."""

    operation: Operation
    token: str = ""
    target: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back over the wire."""

    status: int
    body: bytes
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class CallRecord:
    """The `number`th call ever, `at` by the cloud's clock in seconds.

    `effect` is what was to go wrong. `status` is `None` where nothing was carried out.
    """

    number: int
    at: float
    operation: str
    target: str
    effect: str | None
    status: int | None = None

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


class CallLog:
    """How often each operation was called, for ever, and the last calls one by one."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self._recent: deque[CallRecord] = deque(maxlen=_REMEMBERED)
        self._news: list[CallRecord] = []

    def add(self, at: float, operation: str, target: str, effect: str | None) -> CallRecord:
        number = sum(self.counts.values()) + 1
        record = CallRecord(number, at, operation, target, effect)
        self._remember(record)
        self._news.append(record)
        return record

    def answered(self, record: CallRecord, status: int) -> None:
        record.status = status
        self._news.append(record)

    def news(self) -> list[dict[str, Any]]:
        """What is new since the last time it was asked for: records, perhaps again."""
        news, self._news = self._news, []
        return [record.to_json() for record in news]

    def to_json(self) -> dict[str, Any]:
        recent = [record.to_json() for record in self._recent]
        return {"counts": dict(self.counts), "recent": recent}

    @classmethod
    def from_news(cls, lines: Iterable[dict[str, Any]]) -> CallLog:
        """From all the news there ever were: of two of the same number the later holds."""
        log = cls()
        for line in {line["number"]: line for line in lines}.values():
            log._remember(CallRecord(**line))
        return log

    def _remember(self, record: CallRecord) -> None:
        self.counts[record.operation] = self.counts.get(record.operation, 0) + 1
        self._recent.append(record)
