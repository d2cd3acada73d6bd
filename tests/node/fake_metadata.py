"""Metadata services that speak the real protocols on loopback, with the vices of real ones.

`faults` is consumed one a request; each is a name below or a status. Every request is counted.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

HANG, RESET, GARBAGE, TRICKLE, HUGE, PAGE = "hang", "reset", "garbage", "trickle", "huge", "page"
FAULTS = (HANG, RESET, GARBAGE, TRICKLE, HUGE, PAGE)
"""Never answers · breaks the connection · bytes that are no HTTP · a byte now and then · far too
much · somebody else's page, with status 200."""

REBALANCE = "/latest/meta-data/events/recommendations/rebalance"
ACTION = "/latest/meta-data/spot/instance-action"
SCHEDULED = "/latest/meta-data/events/maintenance/scheduled"


class FakeMetadata:
    """What both have in common: a server, its faults, and a record of what was asked.

    `lasting`: a fault of every request from now on. `clock`: what the answers' Date is, if not
    the time there is.
    """

    def __init__(self) -> None:
        self.faults: list[str | int] = []
        self.lasting: str | int | None = None
        self.asked: list[tuple[str, str]] = []
        self.clock: float | None = None
        self.ending = threading.Event()
        self.changed = threading.Condition()
        service = self

        class Handler(_Handler):
            fake = service

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False

            def handle_error(self, *_: object) -> None:
                """A client that went away is none of the fake's errors."""

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def answer(self, method: str, target: str, headers: Mapping[str, str]) -> _Answer:
        raise NotImplementedError

    def take_fault(self) -> str | int | None:
        return self.faults.pop(0) if self.faults else self.lasting

    def count(self, path: str = "") -> int:
        """Requests so far whose target has `path` in it."""
        return sum(path in target for _, target in self.asked)


_Answer = tuple[int, str, dict[str, str]]


class _Handler(BaseHTTPRequestHandler):
    fake: ClassVar[FakeMetadata]

    def do_GET(self) -> None:
        self._serve()

    def do_PUT(self) -> None:
        self._serve()

    def _serve(self) -> None:
        self.fake.asked.append((self.command, self.path))
        fault = self.fake.take_fault()
        if isinstance(fault, str):
            self._misbehave(fault)
            return
        if fault is not None:
            self._send(fault, "", {})
            return
        self._send(*self.fake.answer(self.command, self.path, self.headers))

    def _send(self, status: int, body: str, headers: Mapping[str, str]) -> None:
        data = body.encode()
        self.send_response_only(status)
        clock = time.time() if self.fake.clock is None else self.fake.clock
        for name, value in {"Date": formatdate(clock, usegmt=True), **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _misbehave(self, fault: str) -> None:
        self.close_connection = True
        if fault == HANG:
            self.fake.ending.wait(60)
        elif fault == RESET:
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        elif fault == GARBAGE:
            self.wfile.write(b"\x00\xff\x16\x03 not http at all\r\n\r\n")
        elif fault == TRICKLE:
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
            while not self.fake.ending.wait(0.02):
                self.wfile.write(b"{")
                self.wfile.flush()
        elif fault == HUGE:
            self._send(200, "x" * 200_000, {})
        else:
            self._send(200, "<html>Please log in</html>", {"Content-Type": "text/html"})

    def log_message(self, *_: object) -> None: ...


class FakeEc2(FakeMetadata):
    """IMDSv2. Tokens are good for `token_uses` requests; `items`: what is not there is 404."""

    def __init__(self) -> None:
        super().__init__()
        self.items: dict[str, str] = {}
        self.token_uses = 10**9
        self.off = False
        self._tokens: dict[str, int] = {}

    def answer(self, method: str, target: str, headers: Mapping[str, str]) -> _Answer:
        if self.off:
            return 403, "", {}
        if target == "/latest/api/token":
            ttl = headers.get("X-aws-ec2-metadata-token-ttl-seconds", "")
            if method != "PUT" or not ttl.isdigit() or not 1 <= int(ttl) <= 21600:
                return 400, "", {}
            token = f"token{len(self._tokens)}=="
            self._tokens[token] = self.token_uses
            return 200, token, {"X-aws-ec2-metadata-token-ttl-seconds": ttl}
        token = headers.get("X-aws-ec2-metadata-token", "")
        if method != "GET" or self._tokens.get(token, 0) <= 0:
            return 401, "", {}
        self._tokens[token] -= 1
        body = self.items.get(target)
        return (404, "<h1>404 - Not Found</h1>", {}) if body is None else (200, body, {})


class FakeGcp(FakeMetadata):
    """Values that hang while they are as the caller knows them. `waits`: whether it does."""

    def __init__(self) -> None:
        super().__init__()
        self.values = {"preempted": "FALSE", "maintenance-event": "NONE"}
        self.waits = True
        self.etags = True
        self.flavor = "Google"
        self.hung: list[str] = []
        self._versions = dict.fromkeys(self.values, 0)

    def set(self, name: str, value: str) -> None:
        """A new value, for those who wait for it, too."""
        with self.changed:
            self.values[name] = value
            self._versions[name] += 1
            self.changed.notify_all()

    def answer(self, method: str, target: str, headers: Mapping[str, str]) -> _Answer:
        path, query = urlsplit(target).path, parse_qs(urlsplit(target).query)
        name = path.rpartition("/")[2]
        if headers.get("Metadata-Flavor") != "Google":
            return 403, "", {}
        if path != f"/computeMetadata/v1/instance/{name}" or name not in self.values:
            return 404, "", {"Metadata-Flavor": self.flavor}
        with self.changed:
            if self.waits and query.get("wait_for_change") == ["true"]:
                self.hung.append(name)
                known = query.get("last_etag", [""])[0]
                limit = float(query.get("timeout_sec", ["600"])[0])
                self.changed.wait_for(lambda: self._etag(name) != known, limit)
            etag = {"ETag": self._etag(name)} if self.etags else {}
            return 200, self.values[name], {"Metadata-Flavor": self.flavor, **etag}

    def _etag(self, name: str) -> str:
        return f"e{self._versions[name]}{name[0]}"


@contextlib.contextmanager
def running(fake: Any) -> Iterator[Any]:
    """Serves until the block ends."""
    thread = threading.Thread(target=fake.server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield fake
    finally:
        fake.ending.set()
        with fake.changed:
            fake.changed.notify_all()
        fake.server.shutdown()
        fake.server.server_close()
        thread.join()
