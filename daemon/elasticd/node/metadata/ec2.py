"""EC2's instance metadata service, version 2.

A session token first, then items: 404 means that there is none, 401 that the token has expired,
403 that the service is switched off for this machine. Everything else says nothing.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from elasticd.node.metadata.asking import Answer, Service, http_date
from elasticd.node.metadata.hearing import (
    INTERRUPTION,
    MAINTENANCE,
    REBALANCE,
    Garbled,
    Heard,
    Listener,
    Notice,
    SwitchedOff,
    Unknown,
)

URL = "http://169.254.169.254"
PERIOD = 5.0
LIMIT = 2.0
TOKEN_SECONDS = 21600
LONGEST_NOTICE = 120.0
"""Seconds that a spot machine has at most; more comes of a clock that is wrong."""
MAINTENANCE_AHEAD = 3600.0
"""Seconds before a scheduled event at which it becomes a notice; they are told weeks before."""
SURELY_GONE = 2
"""So many times in a row an item must be missing until what it said holds no more."""

_ACTIONS = ("terminate", "stop", "hibernate")
_TOKEN = re.compile(r"[\x21-\x7e]{1,1000}")
_Read = Callable[[Answer, str], list[tuple[str, str, float | None]]]
"""From an answer: kind, what makes it one notice and no other, seconds left."""


def listeners(url: str, node_id: str) -> Sequence[Listener]:
    """The one that asks for everything in turn. Raises `ValueError` for a URL it cannot use."""
    return (Ec2(Service(url or URL), node_id),)


class Ec2:
    """Implements `Listener`. Of an item that is not answered, the last answer holds."""

    name = "ec2"

    def __init__(self, service: Service, node_id: str) -> None:
        self._service = service
        self._node_id = node_id
        self._token = ""
        self._held: dict[str, tuple[Notice, ...]] = {}
        self._missing: dict[str, int] = {}

    def listen(self) -> Heard:
        """The most urgent first; who is away or throttles is not asked for the rest."""
        trouble: Unknown | None = None
        answered = 0
        for path, read in _ITEMS.items():
            try:
                self._hear(path, self._ask(path), read)
                answered += 1
            except Garbled as garbled:
                trouble = garbled
            except Unknown as unknown:
                trouble = unknown
                break
        if trouble is not None and not answered:
            raise trouble
        notices = tuple(notice for held in self._held.values() for notice in held)
        complete = self._held.keys() == _ITEMS.keys()
        return Heard(notices, complete, PERIOD, "" if trouble is None else str(trouble))

    def _hear(self, path: str, answer: Answer, read: _Read) -> None:
        before = {notice.notice_id: notice for notice in self._held.get(path, ())}
        if answer.status == 404:
            missing = self._missing[path] = self._missing.get(path, 0) + 1
            if not before or missing >= SURELY_GONE:
                self._held[path] = ()
            return
        self._missing[path] = 0
        if answer.status != 200:
            raise Unknown(f"{self._service.url}{path}: {answer.status}")
        made = (self._notice(*told) for told in read(answer, path))
        # Its end is reckoned once: the same notice read again must not wander.
        self._held[path] = tuple(before.get(notice.notice_id, notice) for notice in made)

    def _notice(self, kind: str, content: str, left: float | None) -> Notice:
        ends_at = None if left is None else time.monotonic() + max(left, 0.0)
        return Notice(f"ec2/{self._node_id}/{kind}/{content}", kind, ends_at)

    def _ask(self, path: str) -> Answer:
        fresh = not self._token
        answer = self._ask_with_token(path)
        if answer.status == 401 and not fresh:
            self._token = ""
            answer = self._ask_with_token(path)
        if answer.status == 401:
            self._token = ""
            raise Unknown(f"{self._service.url}{path}: 401 with a new token")
        self._check_on(answer)
        return answer

    def _ask_with_token(self, path: str) -> Answer:
        if not self._token:
            self._token = self._new_token()
        return self._service.ask(path, {"X-aws-ec2-metadata-token": self._token}, LIMIT)

    def _new_token(self) -> str:
        path, wanted = "/latest/api/token", str(TOKEN_SECONDS)
        headers = {"X-aws-ec2-metadata-token-ttl-seconds": wanted, "Content-Length": "0"}
        try:
            answer = self._service.ask(path, headers, LIMIT, "PUT")
        except Unknown as silent:
            # Asked from inside a container, it does not fail but hang.
            hint = "in a container the machine's HttpPutResponseHopLimit must be 2 or more"
            raise Unknown(f"{silent}; {hint}") from silent
        self._check_on(answer)
        if answer.status != 200:
            raise Unknown(f"{self._service.url}{path}: {answer.status}")
        if not _TOKEN.fullmatch(answer.text):
            raise Unknown(f"{self._service.url}{path}: not a token")
        return answer.text

    def _check_on(self, answer: Answer) -> None:
        if answer.status == 403:
            raise SwitchedOff(
                f"{self._service.url}: 403: instance metadata is switched off for this machine, so "
                "it hears of no interruption; switch it on (HttpEndpoint=enabled), or set the "
                "pool's notices to none"
            )


def _spot_action(answer: Answer, path: str) -> list[tuple[str, str, float | None]]:
    told = _json(answer, path)
    if not isinstance(told, dict) or told.get("action") not in _ACTIONS:
        raise Garbled(f"{path}: no action of a spot machine: {answer.text[:80]!r}")
    left = _time(told.get("time"), path) - answer.now
    return [(INTERRUPTION, str(told["time"]), min(left, LONGEST_NOTICE))]


def _rebalance(answer: Answer, path: str) -> list[tuple[str, str, float | None]]:
    told = _json(answer, path)
    when = told.get("noticeTime") if isinstance(told, dict) else None
    _time(when, path)
    return [(REBALANCE, str(when), None)]


def _maintenance(answer: Answer, path: str) -> list[tuple[str, str, float | None]]:
    told = _json(answer, path)
    if not isinstance(told, list) or not all(isinstance(event, dict) for event in told):
        raise Garbled(f"{path}: no list of events: {answer.text[:80]!r}")
    found: list[tuple[str, str, float | None]] = []
    for event in told:
        if event.get("State") != "active":
            continue
        name, begins = str(event.get("EventId", ""))[:80], str(event.get("NotBefore", ""))[:40]
        try:
            left = http_date(begins) - answer.now
        except ValueError as odd:
            raise Garbled(f"{path}: {odd}") from odd
        if left <= MAINTENANCE_AHEAD:
            found.append((MAINTENANCE, f"{name}@{begins}", left))
    return found


def _json(answer: Answer, path: str) -> Any:
    try:
        return json.loads(answer.text)
    except (ValueError, RecursionError) as odd:
        raise Garbled(f"{path}: not JSON: {answer.text[:80]!r}") from odd


def _time(told: object, path: str) -> float:
    """Strictly `2026-10-01T08:22:00Z`: other things have been seen where no notice was meant."""
    try:
        moment = datetime.strptime(str(told), "%Y-%m-%dT%H:%M:%SZ")
    except ValueError as odd:
        raise Garbled(f"{path}: not a time: {str(told)[:80]!r}") from odd
    return moment.replace(tzinfo=UTC).timestamp()


_ITEMS: dict[str, _Read] = {
    "/latest/meta-data/spot/instance-action": _spot_action,
    "/latest/meta-data/events/recommendations/rebalance": _rebalance,
    "/latest/meta-data/events/maintenance/scheduled": _maintenance,
}
