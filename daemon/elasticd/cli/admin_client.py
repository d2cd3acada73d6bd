"""Asking the controller over its admin socket; standard library only, so commands are quick."""

from __future__ import annotations

import http.client
import json
import socket
from pathlib import Path
from typing import Any

from elasticd.errors import ElasticdError, NotReachable


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        try:
            self.sock.connect(str(self._path))
        except OSError:
            self.sock.close()
            raise


class AdminClient:
    """One daemon. Each call is a connection of its own; `timeout` in seconds."""

    def __init__(self, path: Path, timeout: float = 10.0) -> None:
        self.path = path
        self._timeout = timeout

    def status(self) -> dict[str, Any]:
        """The fleet as the controller sees it."""
        return self._call("GET", "/api/v1/status")

    def down(self, by: str) -> dict[str, Any]:
        """Asks to give every machine back; returns at once."""
        return self._call("POST", "/api/v1/down", {"by": by})

    def preempt(self, node_id: str, notice: float | None) -> dict[str, Any]:
        """Takes a node as its market would: at once, or `notice` seconds after a notice."""
        return self._call("POST", f"/api/v1/nodes/{node_id}/preempt", {"notice": notice})

    def _call(self, method: str, url: str, body: Any = None) -> dict[str, Any]:
        """Raises `NotReachable` when nobody answers, `ElasticdError` when the answer is no."""
        connection = _UnixConnection(self.path, self._timeout)
        try:
            payload = None if body is None else json.dumps(body)
            connection.request(method, url, payload, {"Content-Type": "application/json"})
            response = connection.getresponse()
            text = response.read()
        except PermissionError as bad:
            raise NotReachable(
                f"{self.path}: not allowed; run this as the daemon's user or in its group"
            ) from bad
        except (FileNotFoundError, ConnectionRefusedError) as bad:
            raise NotReachable(
                f"no daemon answers at {self.path}; start it with `elasticd run`, "
                "or name another with -c FILE or --socket PATH"
            ) from bad
        except (OSError, http.client.HTTPException) as bad:
            raise NotReachable(f"the daemon at {self.path} does not answer: {bad!r}") from bad
        finally:
            connection.close()
        return _answer(response.status, text)


def _answer(status: int, text: bytes) -> dict[str, Any]:
    try:
        data = json.loads(text) if text else {}
    except ValueError:
        data = {}
    if status >= 400:
        message = data.get("error") if isinstance(data, dict) else None
        raise ElasticdError(str(message or f"the daemon refused with status {status}"))
    if not isinstance(data, dict):
        raise ElasticdError("the daemon's answer is not a JSON object; are versions mixed?")
    return data
