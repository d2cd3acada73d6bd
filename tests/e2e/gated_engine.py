"""An OpenAI-like engine of the standard library: slow tokens, a child of its own, a gate.

    python gated_engine.py PORT GATE

It answers nothing while the file GATE exists at its start, so that a test holds a replica in its
starting phase as long as it likes. Token number N of an answer is `N` and a blank; each event of a
stream names the replica that made it, so that a client knows who was lost.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any

PACE = 0.04
"""Seconds for a token."""
_GATE_POLL = 0.02
_COUNTERS = """vllm:num_requests_running{{engine="0"}} {running}
vllm:generation_tokens_total{{engine="0"}} {tokens}
"""


class Counts:
    """What the engine tells of itself."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.running = 0
        self.tokens = 0

    def add(self, running: int = 0, tokens: int = 0) -> None:
        with self._lock:
            self.running += running
            self.tokens += tokens


COUNTS = Counts()


class Handler(BaseHTTPRequestHandler):
    """Health, counters, chats; nothing without the key but the first two."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/health":
            self._answer(200, b"")
        elif self.path == "/metrics":
            text = _COUNTERS.format(running=COUNTS.running, tokens=COUNTS.tokens)
            self._answer(200, text.encode())
        else:
            self._answer(404, b"{}")

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        if self.headers.get("Authorization") != f"Bearer {os.environ['ELASTICD_ENGINE_KEY']}":
            self._answer(401, b"{}")
            return
        COUNTS.add(running=1)
        try:
            self._chat(int(asked["max_tokens"]), bool(asked.get("stream")))
        except OSError:
            self.close_connection = True  # nobody wants the rest
        finally:
            COUNTS.add(running=-1)

    def _chat(self, tokens: int, stream: bool) -> None:
        if stream:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
        for number in range(tokens):
            time.sleep(PACE)
            COUNTS.add(tokens=1)
            if stream:
                self._event({"delta": {"content": f"{number} "}, "finish_reason": None})
        if stream:
            self._event({"delta": {}, "finish_reason": "length"})
            self._chunk(b"data: [DONE]\n\n")
            self._chunk(b"")
            return
        text = "".join(f"{number} " for number in range(tokens))
        choice = {"index": 0, "message": {"content": text}, "finish_reason": "length"}
        self._answer(200, json.dumps({"choices": [choice]}).encode())

    def _event(self, choice: dict[str, Any]) -> None:
        replica = json.loads(os.environ["ELASTICD_REPLICA"])[0]
        event = {"replica": replica, "choices": [{"index": 0, **choice}]}
        self._chunk(f"data: {json.dumps(event)}\n\n".encode())

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Silent: the tail belongs to what matters."""


def main() -> None:
    # Real engines are several processes, and the others do not die with the first by themselves.
    subprocess.Popen(["sleep", "3600"])
    gate = Path(sys.argv[2])
    while gate.exists():
        time.sleep(_GATE_POLL)
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()


if __name__ == "__main__":
    main()
