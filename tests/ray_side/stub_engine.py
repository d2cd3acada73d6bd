"""An engine of the standard library alone: health, counters, an endless stream; obeys its key."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

GRANDCHILD = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
COUNTERS = """vllm:num_requests_running{{engine="0"}} {running}
vllm:generation_tokens_total{{engine="0"}} 7
"""


class Handler(BaseHTTPRequestHandler):
    """Answers like a small OpenAI-compatible server."""

    def do_GET(self) -> None:
        running = int(os.environ.get("STUB_RUNNING", "0"))
        if self.path == "/health":
            self._answer(500 if "ill" in sys.argv else 200, b"")
        elif self.path == "/metrics":
            self._answer(200, COUNTERS.format(running=running).encode())
        elif self.headers.get("Authorization") != f"Bearer {os.environ['ELASTICD_ENGINE_KEY']}":
            self._answer(401, b"")
        elif self.path == "/stream":
            self._stream()
        else:
            seen = {"gpus": os.environ.get("CUDA_VISIBLE_DEVICES"), "pid": os.getpid()}
            self._answer(200, json.dumps(seen).encode())

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self) -> None:
        """Numbers, one a line, until the client goes."""
        self.send_response(200)
        self.end_headers()
        with contextlib.suppress(OSError):
            for number in itertools.count():
                self.wfile.write(f"{number}\n".encode())
                time.sleep(0.05)

    def log_message(self, *_: object) -> None:
        """Silent: the tail belongs to what matters."""


def main() -> None:
    """Arguments: the port, then `grandchild` (a stubborn one in a session of its own), `never`
    (does not get ready), `ill` (listens and answers 500), `tell-pid`, `tell-place` (the next
    word, and what it knows of a hub)."""
    print("Starting vLLM API server on stub", flush=True)
    if "grandchild" in sys.argv:
        subprocess.Popen([sys.executable, "-c", GRANDCHILD], start_new_session=True)
    if "tell-pid" in sys.argv:
        print(os.getpid(), flush=True)
    if "tell-place" in sys.argv:
        place = sys.argv[sys.argv.index("tell-place") + 1]
        print(place, os.environ.get("HF_HUB_OFFLINE"), os.environ.get("HF_TOKEN"), flush=True)
    if "never" in sys.argv:
        time.sleep(600)
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()


if __name__ == "__main__":
    main()
