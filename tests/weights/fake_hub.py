"""A model hub on this machine, as a process of its own: its API, its redirects, its bad days.

    python tests/weights/fake_hub.py FOLDER

It serves the repositories below FOLDER (`OWNER/NAME/FILES`), each as one commit under the branch
`main`, large files by a redirect to a content host of another name (`localhost`), as the public
hub does. It prints its port. `PUT /_mood` sets how it behaves (see `Mood`), `GET /_calls` tells
what it was asked.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import re
import sys
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

LARGE = 1 << 16
_CHUNK = 1 << 15


@dataclasses.dataclass
class Mood:
    """`only` names what the mood is about: `api`, `files`, `content`, or everything.

    `status` (with `code`) is answered instead, `times` times (−1: always). `drop_after` bytes of
    content the connection breaks, `times` times. `rate`: bytes a second of one connection.
    `hang`: no answer at all. `token`: what must be shown, else `GatedRepo`. `commit`: what `main`
    is now. `damaged`: `times` times content arrives with one wrong byte. `says`, `repeat` times, is
    answered instead. `longer`: bytes that content goes on after its end. `circle`: every call is
    sent to where it was. `extra`: more entries of the list.
    """

    only: str = ""
    status: int = 0
    code: str = ""
    times: int = -1
    drop_after: int = -1
    rate: int = 0
    hang: bool = False
    token: str = ""
    commit: str = ""
    damaged: bool = False
    says: str = ""
    repeat: int = 1
    longer: int = 0
    circle: bool = False
    extra: list[dict[str, Any]] = dataclasses.field(default_factory=list)


class Hub:
    """What is there, how it behaves, and what was asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lock = threading.Lock()
        self.mood = Mood()
        self.calls: list[dict[str, Any]] = []

    def applies(self, kind: str) -> bool:
        """Whether the mood is about this call; counts it."""
        with self.lock:
            if self.mood.only not in ("", kind) or self.mood.times == 0:
                return False
            self.mood.times -= self.mood.times > 0
            return True

    def commit(self, repo: str) -> str:
        return self.mood.commit or hashlib.sha1(repo.encode()).hexdigest()

    def files(self, repo: str) -> list[Path]:
        place = self.folder / repo
        return sorted(path for path in place.rglob("*") if path.is_file())


class Handler(BaseHTTPRequestHandler):
    """One call."""

    protocol_version = "HTTP/1.1"
    hub: Hub

    def do_PUT(self) -> None:
        size = int(self.headers["Content-Length"])
        with self.hub.lock:
            self.hub.mood = Mood(**json.loads(self.rfile.read(size)))
        self._json({})

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = urllib.parse.unquote(urllib.parse.urlparse(self.path).path)
        if path == "/_calls":
            with self.hub.lock:
                self._json(list(self.hub.calls))
            return
        kind = "api" if path.startswith("/api/") else "files"
        kind = "content" if path.startswith("/content/") else kind
        with self.hub.lock:
            self.hub.calls.append(
                {
                    "method": self.command,
                    "path": path,
                    "range": self.headers.get("Range"),
                    "auth": self.headers.get("Authorization"),
                    "sent": 0,
                }
            )
            call = self.hub.calls[-1]
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            if not self._refused(kind):
                getattr(self, f"_{kind}")(path, call)

    def _refused(self, kind: str) -> bool:
        mood = self.hub.mood
        if mood.hang and self.hub.applies(kind):
            time.sleep(600)
        if mood.status and self.hub.applies(kind):
            self._error(mood.status, mood.code)
            return True
        if mood.circle and self.hub.applies(kind):
            self._answer(302, b"", {"Location": self.path})
            return True
        if mood.says and self.hub.applies(kind):
            self._answer(200, mood.says.encode() * mood.repeat, {})
            return True
        # Like the public hub: the list of a gated repository is open, its files are not.
        shown = self.headers.get("Authorization")
        if mood.token and kind == "files" and shown != f"Bearer {mood.token}":
            self._error(401 if shown is None else 403, "GatedRepo")
            return True
        return False

    def _api(self, path: str, _: dict[str, Any]) -> None:
        match = re.fullmatch(r"/api/models/(.+?)/(revision|tree)/(.+)", path)
        repo = match[1] if match else ""
        if match is None or not (self.hub.folder / repo).is_dir():
            # Somebody without a token is not told whether it is private.
            self._error(404 if self.headers.get("Authorization") else 401, "RepoNotFound")
        elif match[3] not in ("main", self.hub.commit(repo)):
            self._error(404, "RevisionNotFound")
        elif match[2] == "tree":
            self._json([_tree_entry(self.hub.folder / repo, f) for f in self.hub.files(repo)])
        else:
            siblings = [_sibling(self.hub.folder / repo, f) for f in self.hub.files(repo)]
            siblings += self.hub.mood.extra
            self._json({"id": repo, "sha": self.hub.commit(repo), "siblings": siblings})

    def _files(self, path: str, call: dict[str, Any]) -> None:
        match = re.fullmatch(r"/(.+?)/resolve/([^/]+)/(.+)", path)
        place = self.hub.folder / match[1] / match[3] if match else None
        if match is None or place is None or not place.is_file():
            self._error(404, "EntryNotFound")
            return
        data = place.read_bytes()
        headers = {"X-Repo-Commit": self.hub.commit(match[1]), "Accept-Ranges": "bytes"}
        if len(data) < LARGE:
            self._data(data, headers | {"ETag": f'"{_git_hash(data)}"'}, call)
            return
        headers["X-Linked-Size"] = str(len(data))
        headers["X-Linked-Etag"] = f'"{hashlib.sha256(data).hexdigest()}"'
        port = self.server.server_address[1]
        target = f"http://localhost:{port}/content/{match[1]}/{match[3]}?signature=opens-it"
        headers["Location"] = target
        self._answer(302, b"", headers)

    def _content(self, path: str, call: dict[str, Any]) -> None:
        data = (self.hub.folder / path.removeprefix("/content/")).read_bytes()
        self._data(data, {"Accept-Ranges": "bytes", "ETag": '"content"'}, call)

    def _data(self, data: bytes, headers: dict[str, str], call: dict[str, Any]) -> None:
        start, status = 0, 200
        if wanted := self.headers.get("Range"):
            start, status = int(wanted.removeprefix("bytes=").split("-")[0]), 206
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        longer = self.hub.mood.longer if self.path.startswith("/content/") else 0
        if longer:
            self.send_header("Connection", "close")
        else:
            self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        if self.command != "HEAD":
            self._send(data[start:], call)
            for _ in range(longer // _CHUNK):
                self.wfile.write(bytes(_CHUNK))
                call["sent"] += _CHUNK

    def _send(self, data: bytes, call: dict[str, Any]) -> None:
        mood = self.hub.mood
        kind = "content" if self.path.startswith("/content/") else "files"
        if mood.damaged and self.hub.applies(kind):
            data = bytes([data[0] ^ 1]) + data[1:]
        dropping = mood.drop_after >= 0 and self.hub.applies(kind)
        limit = mood.drop_after if dropping else len(data)
        chunk = max(1, min(_CHUNK, mood.rate // 20)) if mood.rate else _CHUNK
        for at in range(0, min(limit, len(data)), chunk):
            piece = data[at : min(at + chunk, limit)]
            self.wfile.write(piece)
            call["sent"] += len(piece)
            if mood.rate:
                time.sleep(len(piece) / mood.rate)
        if dropping:
            self.close_connection = True

    def _error(self, status: int, code: str) -> None:
        headers = {"X-Error-Code": code, "X-Error-Message": f"told as {code}"} if code else {}
        self._answer(status, b'{"error": "no"}', headers)

    def _json(self, value: Any) -> None:
        self._answer(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Silent."""


def _git_hash(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def _described(data: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {"size": len(data)}
    if len(data) >= LARGE:
        sha256 = hashlib.sha256(data).hexdigest()
        found["lfs"] = {"sha256": sha256, "size": len(data), "pointerSize": 134}
    return found


def _sibling(repo: Path, file: Path) -> dict[str, Any]:
    data = file.read_bytes()
    name = str(file.relative_to(repo))
    return {"rfilename": name, "blobId": _git_hash(data), **_described(data)}


def _tree_entry(repo: Path, file: Path) -> dict[str, Any]:
    data = file.read_bytes()
    found = {"type": "file", "path": str(file.relative_to(repo)), "oid": _git_hash(data)}
    if "lfs" in (more := _described(data)):
        more["lfs"] = {**more["lfs"], "oid": more["lfs"]["sha256"]}
    return {**found, **more}


def main() -> None:
    """Serves until it is killed."""
    Handler.hub = Hub(Path(sys.argv[1]))
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
