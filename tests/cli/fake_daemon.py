"""An admin API in a thread, which answers what a test told it to."""

from __future__ import annotations

import http.server
import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class FakeDaemon(socketserver.ThreadingUnixStreamServer):
    """`statuses` are answered one after the other, the last one for good."""

    daemon_threads = True

    def __init__(self, path: Path) -> None:
        self.path = path
        self.statuses: list[dict[str, Any]] = []
        self.asked: list[tuple[str, Any]] = []
        self.refusal: tuple[int, str] | None = None
        super().__init__(str(path), _Handler)

    def answer(self, method: str, url: str, body: Any) -> tuple[int, Any]:
        """What the daemon says."""
        if method == "GET":
            return 200, self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        self.asked.append((url, body))
        if self.refusal is not None:
            return self.refusal[0], {"error": self.refusal[1]}
        if url.endswith("/preempt"):
            return 200, {"node_id": url.split("/")[-2], "notice": body["notice"]}
        if url.endswith("/preempt"):
            return 200, {"node_id": url.split("/")[-2], "notice": body["notice"]}
        return 202, {"accepted": True}


class _Handler(http.server.BaseHTTPRequestHandler):
    server: FakeDaemon

    def _reply(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size)) if size else None
        status, data = self.server.answer(self.command, self.path, body)
        payload = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    do_GET = do_POST = _reply  # noqa: N815 - the names that http.server looks for

    def address_string(self) -> str:
        return "-"

    def log_message(self, *args: Any) -> None:
        """Quiet."""


@contextmanager
def fake_daemon(path: Path, kind: type[FakeDaemon] = FakeDaemon) -> Iterator[FakeDaemon]:
    """Serves while the block runs."""
    with kind(path) as daemon:
        thread = threading.Thread(target=daemon.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield daemon
        finally:
            daemon.shutdown()
            thread.join()
