"""What answers at the admin socket may be anything: one message, and never taken for success."""

from __future__ import annotations

import copy
import json
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from elasticd.cli import answer_shape, main
from elasticd.cli import down as down_module
from elasticd.cli.admin_client import AdminClient
from elasticd.errors import NotReachable
from tests.cli.samples import sample_status


class _Raw(socketserver.BaseRequestHandler):
    server: _Server

    def handle(self) -> None:
        self.request.settimeout(5)
        self.request.recv(65536)
        self.request.sendall(self.server.said)
        self.request.shutdown(socket.SHUT_WR)
        while self.request.recv(65536):  # to close on what is unread would cut the answer off
            pass


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    said = b""


@contextmanager
def saying(path: Path, said: bytes) -> Iterator[Path]:
    """Somebody at `path` who answers everything with these bytes."""
    with _Server(str(path), _Raw) as server:
        server.said = said
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield path
        finally:
            server.shutdown()
            thread.join()


def http(body: str | bytes, status: int = 200) -> bytes:
    content = body if isinstance(body, bytes) else body.encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(content)}\r\nConnection: close\r\n\r\n"
    return head.encode() + content


GARBAGE = {
    "nothing": b"",
    "another protocol": b"SSH-2.0-OpenSSH_9\r\n",
    "an empty page": http(""),
    "a page": http("<html>"),
    "an empty object": http("{}"),
    "a list": http("[]"),
    "null": http("null"),
    "no number": http('{"nodes": NaN, "models": NaN, "pools": NaN}'),
    "other kinds": http('{"nodes": 5, "models": "x", "pools": {}, "entries": 3, "problem": 1}'),
    "nothing in it": http('{"nodes": null, "models": null, "pools": null, "entries": null}'),
    "items of other kinds": http('{"nodes": [1], "models": ["x"], "pools": [null]}'),
    "items without names": http('{"nodes": [{}], "models": [{}], "pools": [{}], "entries": [{}]}'),
    "very deep": http("[" * 200_000),
    "no text": http(b'{"a": "\xff\xfe"}'),
    "elsewhere": b"HTTP/1.1 302 F\r\nLocation: http://x/\r\nContent-Length: 0\r\n\r\n",
}
COMMANDS = (
    ["status"],
    ["status", "--json"],
    ["status", "--why"],
    ["events"],
    ["adopt"],
    ["down", "--yes"],
    ["drain", "n"],
    ["undrain", "n"],
    ["scale", "m", "2"],
    ["reload"],
    ["drill", "preempt", "n"],
)


@pytest.mark.parametrize("kind", GARBAGE)
def test_no_command_takes_garbage_for_success(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(down_module, "_PATIENCE", 0.0)
    with saying(tmp_path / "a.sock", GARBAGE[kind]) as path:
        for command in COMMANDS:
            assert main([*command, "--socket", str(path)]) == 3, command
            assert str(path) in capsys.readouterr().err, command


@pytest.mark.parametrize(
    ("said", "code", "told"),
    [
        (http("oops", 500), 1, "the daemon refused with status 500"),
        (http('{"error": {"message": "x"}}', 401), 1, "the daemon refused with status 401"),
        (http('{"error": "starting"}', 503), 3, "starting"),
        (http('{"error": "no node"}', 404), 2, "no node"),
    ],
)
def test_a_refusal_keeps_its_exit_code_whatever_its_body_is(
    said: bytes, code: int, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with saying(tmp_path / "a.sock", said) as path:
        assert main(["drain", "n", "--json", "--socket", str(path)]) == code
    shown = capsys.readouterr()
    assert told in shown.err
    assert json.loads(shown.out) == {"error": told, "exit_code": code}


def _spoiled(status: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each key of it, and of the first item of each list, once of another kind."""
    for key, value in status.items():
        yield key, {**status, key: {"of": "another kind"}}
        yield key, {**status, key: None}
        if isinstance(value, list) and value and isinstance(value[0], dict):
            for inner in value[0]:
                for other in ({"of": "another kind"}, None):
                    changed = copy.deepcopy(status)
                    changed[key][0][inner] = other
                    yield f"{key}[0].{inner}", changed


@pytest.mark.parametrize("argv", [["status"], ["status", "--why"], ["adopt"]])
def test_a_status_of_other_kinds_is_read_or_refused_and_breaks_nothing(
    argv: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = AdminClient(tmp_path / "a.sock")
    told: dict[str, Any] = {}
    monkeypatch.setattr(
        AdminClient,
        "_call",
        lambda *_, **__: client._understood(200, json.dumps(told).encode(), answer_shape.STATUS),
    )
    for path, status in _spoiled(sample_status()):
        told.clear()
        told.update(status)
        assert main([*argv, "--socket", str(tmp_path / "a.sock")]) in (0, 1, 3), path


def test_a_status_is_refused_with_the_path_of_what_is_wrong(tmp_path: Path) -> None:
    status = sample_status()
    status["nodes"][0]["age"] = "old"
    client = AdminClient(tmp_path / "a.sock")
    with pytest.raises(NotReachable, match=r"nodes\[0\]\.age is no number"):
        client._understood(200, json.dumps(status).encode(), answer_shape.STATUS)


def test_what_a_daemon_of_another_version_tells_more_or_less_of_is_fine() -> None:
    status = sample_status(something={"new": 1})
    for key in ("recent", "at", "controller", "cluster"):
        del status[key]
    assert list(answer_shape.STATUS(status, "")) == []
