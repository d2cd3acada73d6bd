"""Google Cloud's metadata server: values that are asked for once and answer when they change.

A request that names the last answer's ETag hangs until the value is another one, or the wait is
over. Whatever does not carry the server's own header is somebody else's answer.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from elasticd.node.metadata.asking import Answer, Service
from elasticd.node.metadata.hearing import (
    INTERRUPTION,
    MAINTENANCE,
    Garbled,
    Heard,
    Listener,
    Notice,
    Unknown,
)

URL = "http://metadata.google.internal"
HANG = 60.0
"""Seconds for which the server is asked to hold an unchanged value."""
LATE = 10.0
"""Seconds on top of it after which it counts as silent."""
LIMIT = 5.0
PERIOD = 5.0
"""Seconds between two questions where the server does not make us wait."""
SPACING = 1.0
"""Seconds between two answers that came at once, whatever they say."""

_FLAVOR = "Google"


@dataclass(frozen=True, slots=True)
class Value:
    """One value: what each of its words means, as a notice's kind and its seconds left."""

    name: str
    meanings: Mapping[str, tuple[str, float] | None]


PREEMPTED = Value("preempted", {"FALSE": None, "TRUE": (INTERRUPTION, 30.0)})
MAINTENANCE_EVENT = Value(
    "maintenance-event",
    {
        "NONE": None,
        # Moved while it runs: nothing is lost. Machines with GPUs cannot be, and get an hour.
        "MIGRATE_ON_HOST_MAINTENANCE": None,
        "TERMINATE_ON_HOST_MAINTENANCE": (MAINTENANCE, 3600.0),
    },
)


def listeners(url: str, node_id: str) -> Sequence[Listener]:
    """One for each value, as each hangs by itself. Raises `ValueError` for a URL it cannot use."""
    service = Service(url or URL)
    return tuple(Gcp(service, node_id, value) for value in (PREEMPTED, MAINTENANCE_EVENT))


class Gcp:
    """Implements `Listener` for one value."""

    def __init__(self, service: Service, node_id: str, value: Value) -> None:
        self.name = f"gcp {value.name}"
        self._service = service
        self._node_id = node_id
        self._value = value
        self._etag = ""
        self._held: tuple[str, tuple[Notice, ...]] | None = None

    def listen(self) -> Heard:
        """The first answer comes at once, each later one when there is something new."""
        asked = time.monotonic()
        try:
            answer = self._ask()
            word = self._word(answer)
        except Unknown:
            # What it says when it can be asked again is to be heard at once.
            self._etag = ""
            raise
        self._etag = answer.headers.get("etag", "")
        news = self._held is None or self._held[0] != word
        if self._held is None or news:
            self._held = (word, self._notices(word))
        took = time.monotonic() - asked
        rest = 0.0 if took >= SPACING else SPACING if news else PERIOD
        return Heard(self._held[1], complete=True, rest=rest)

    def _ask(self) -> Answer:
        path = f"/computeMetadata/v1/instance/{self._value.name}"
        headers = {"Metadata-Flavor": _FLAVOR}
        if not self._etag:
            return self._service.ask(path, headers, LIMIT)
        query = f"wait_for_change=true&timeout_sec={HANG:.0f}&last_etag={quote(self._etag)}"
        return self._service.ask(f"{path}?{query}", headers, HANG + LATE)

    def _word(self, answer: Answer) -> str:
        where = f"{self._service.url}/…/{self._value.name}"
        if answer.status != 200:
            raise Unknown(f"{where}: {answer.status}")
        if answer.headers.get("metadata-flavor") != _FLAVOR:
            raise Garbled(f"{where}: not the answer of a metadata server (no Metadata-Flavor)")
        if answer.text not in self._value.meanings:
            raise Garbled(f"{where}: {answer.text[:80]!r} means nothing")
        return answer.text

    def _notices(self, word: str) -> tuple[Notice, ...]:
        meaning = self._value.meanings[word]
        if meaning is None:
            return ()
        kind, seconds = meaning
        notice_id = f"gcp/{self._node_id}/{kind}/{word}"
        return (Notice(notice_id, kind, time.monotonic() + seconds),)
