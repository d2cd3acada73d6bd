"""A stand-in for one process of ours: says that it runs, and ends when asked.

`controller` answers on an admin socket, with one machine until it is told to go down; on SIGHUP
it says what the file `refusal` says, if there is one; with a file `end` (a code and words) it ends
at once. `gateway` writes down each SIGHUP.
`stubborn` ignores SIGTERM and has a child of its own; `refusing` exits with 2; others just run.
"""

from __future__ import annotations

import http.server
import json
import os
import signal
import socketserver
import subprocess
import sys
from pathlib import Path
from typing import Any

ROLE, PLACE = sys.argv[1], Path(sys.argv[2])
MACHINES = PLACE / "machines"


class Admin(http.server.BaseHTTPRequestHandler):
    """Just enough of the admin API."""

    down = False
    reloads = 0
    pid = os.getpid()
    problem = ""

    def do_GET(self) -> None:
        """The status: machines are what the file lists, so that they outlive this process."""
        names = MACHINES.read_text().split()
        nodes = [{"id": n, "pool": "p", "phase": "ready", "reason": ""} for n in names]
        models = [{"name": "m", "ready": len(nodes), "blocked": ""}]
        down = {"left": len(nodes)} if Admin.down else None
        reload = {"number": Admin.reloads, "problem": Admin.problem, "changed": ["models[m]"]}
        controller = {"reload": reload, "pid": Admin.pid}
        self._answer(
            {
                "nodes": nodes,
                "replicas": [],
                "models": models,
                "pools": [],
                "down": down,
                "controller": controller,
            }
        )

    def do_POST(self) -> None:
        """Down: the machines are gone at once."""
        Admin.down = True
        MACHINES.write_text("")
        self._answer({"accepted": True})

    def _answer(self, data: dict[str, Any]) -> None:
        body = json.dumps(data).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return "-"

    def log_message(self, *args: Any) -> None:
        """Quiet."""


def reload(*_: object) -> None:
    refusal = PLACE / "refusal"
    Admin.problem = refusal.read_text() if refusal.exists() else ""
    Admin.reloads += 1


def note_hangup(*_: object) -> None:
    with (PLACE / f"{ROLE}.hangups").open("a") as out:
        out.write("again\n")


def main() -> None:
    if ROLE == "controller":
        signal.signal(signal.SIGHUP, reload)
    if ROLE == "gateway":
        signal.signal(signal.SIGHUP, note_hangup)
    with (PLACE / f"{ROLE}.pids").open("a") as pids:
        pids.write(f"{os.getpid()}\n")
    if ROLE == "refusing":
        print("this configuration is not for me", flush=True)
        sys.exit(2)
    if ROLE == "controller" and (PLACE / "end").exists():
        code, words = (PLACE / "end").read_text().split(maxsplit=1)
        print(words, flush=True)
        os._exit(int(code))
    if ROLE == "controller":
        socket = PLACE / "state" / "run" / "admin.sock"
        socket.unlink(missing_ok=True)
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        with socketserver.ThreadingUnixStreamServer(str(socket), Admin) as server:
            server.serve_forever()
    if ROLE == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        helper = subprocess.Popen(["sleep", "600"])
        (PLACE / "helper.pid").write_text(str(helper.pid))
    print("running", flush=True)
    while True:
        signal.pause()


main()
