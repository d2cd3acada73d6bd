"""A cluster agent for node watchers: lets them in, and keeps what they report."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ANSWER = {
    "ray_address": "127.0.0.1:6379",
    "ray_token": "ray-secret",
    "report_token": "report-secret",
    "ray_env": {"RAY_AUTH_MODE": "token", "RAY_from_agent": "1"},
}


class FakeAgent:
    """Answers joins with `join_status` in turn (the last one stays), reports with
    `report_status` likewise, and keeps what it takes."""

    def __init__(self) -> None:
        self.join_status = [200]
        self.report_status = [200]
        self.refused = ""
        self.joins: list[dict[str, Any]] = []
        self.reports: list[dict[str, Any]] = []
        agent = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status, answer = agent.heard(self.path, self.headers["Authorization"], body)
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def heard(self, path: str, shown: str | None, body: dict[str, Any]) -> tuple[int, Any]:
        if path == "/v1/nodes/join":
            self.joins.append(body)
            status = _next(self.join_status)
            answer = {**ANSWER, "refused": self.refused} if self.refused else ANSWER
            return status, answer if status == 200 else {"error": f"status {status}"}
        assert path == "/v1/nodes/n-1/report"
        if shown != "Bearer report-secret":
            return 401, {"error": "wrong token"}
        status = _next(self.report_status)
        if status == 200:
            self.reports.append(body)
        return status, {}

    def phases(self) -> list[str]:
        return [report["boot"] for report in self.reports]


def _next(statuses: list[int]) -> int:
    return statuses.pop(0) if len(statuses) > 1 else statuses[0]


@contextlib.contextmanager
def running_agent() -> Iterator[FakeAgent]:
    """Listens until the block ends."""
    fake = FakeAgent()
    thread = threading.Thread(target=fake.server.serve_forever, args=(0.01,))
    thread.start()
    with contextlib.closing(fake.server.socket):
        yield fake
        fake.server.shutdown()
        thread.join()
