"""One request to a metadata service: no proxy, no redirect, bounded in time and size."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import urlsplit

from elasticd.node.metadata.hearing import Garbled, Unknown

LARGEST = 64 * 1024
"""Bytes of an answer; what these services say fits into a few hundred."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. `now`: the wall clock of whoever answered, in seconds, else our own."""

    status: int
    text: str
    headers: Mapping[str, str]
    now: float


class Service:
    """A metadata service at `http://HOST[:PORT]`. Raises `ValueError` for any other URL."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname or parts.path.strip("/"):
            raise ValueError(f"metadata URL {url!r}: http://HOST or http://HOST:PORT is expected")
        self._host, self._port = parts.hostname, parts.port or 80
        self.url = url.rstrip("/")

    def ask(
        self, path: str, headers: Mapping[str, str], limit: float, method: str = "GET"
    ) -> Answer:
        """The answer, whatever its status. Raises `Unknown` if none is complete in `limit` s."""
        ends_at = time.monotonic() + limit
        connection = HTTPConnection(self._host, self._port)
        try:
            connection.sock = _connect((self._host, self._port), ends_at)
            connection.request(method, path, headers=dict(headers))
            with connection.getresponse() as response:
                body = response.read(LARGEST + 1)
        except TimeoutError as late:
            raise Unknown(f"{self.url}{path}: no answer within {limit:g} s") from late
        except (OSError, HTTPException, ValueError) as broken:
            told = str(broken) or type(broken).__name__
            raise Unknown(f"{self.url}{path}: {told}") from broken
        finally:
            connection.close()
        if len(body) > LARGEST:
            raise Garbled(f"{self.url}{path}: more than {LARGEST} bytes")
        named = {name.lower(): value for name, value in response.getheaders()}
        text = body.decode("utf-8", "replace").strip()
        return Answer(response.status, text, named, _clock_of(named))


def http_date(text: str) -> float:
    """Seconds of `21 Jan 2019 09:00:43 GMT`, in any locale. Raises `ValueError`."""
    try:
        return parsedate_to_datetime(text).timestamp()
    except (TypeError, IndexError, OverflowError) as odd:
        raise ValueError(f"{text!r} is not a date") from odd


def _clock_of(headers: Mapping[str, str]) -> float:
    try:
        return http_date(headers.get("date", ""))
    except ValueError:
        return time.time()


class _Bounded(socket.socket):
    """Whatever trickles in, reading ends at `ends_at`: a limit for each read alone would not."""

    ends_at = 0.0

    def recv_into(self, *args: Any, **kwargs: Any) -> int:
        self.settimeout(_left(self.ends_at))
        return super().recv_into(*args, **kwargs)


def _connect(address: tuple[str, int], ends_at: float) -> socket.socket:
    plain = socket.create_connection(address, timeout=_left(ends_at))
    bounded = _Bounded(fileno=plain.detach())
    bounded.ends_at = ends_at
    bounded.settimeout(_left(ends_at))
    return bounded


def _left(ends_at: float) -> float:
    left = ends_at - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
