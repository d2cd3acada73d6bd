"""Asking the controller over its admin socket; standard library only, so commands are quick."""

from __future__ import annotations

import http.client
import json
import socket
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from elasticd.cli import answer_shape as shape
from elasticd.errors import ElasticdError, NotReachable, UsageError

_RELOAD_TIMEOUT = 75.0
"""Seconds: one reload may wait for another, and each reads for half a minute at most."""


_LARGEST_ANSWER = 256 * 1024 * 1024
"""Bytes: a status of ten thousand nodes is some ten millions."""


class OnlyObserves(ElasticdError):
    """The controller does nothing any more, so it does not do what was asked either."""


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
    """One daemon. Each call is a connection of its own; times in seconds."""

    def __init__(self, path: Path, timeout: float = 10.0) -> None:
        self.path = path
        self._timeout = timeout

    def status(self) -> dict[str, Any]:
        """The fleet as the controller sees it."""
        return self._call("GET", "/api/v1/status", of=shape.STATUS)

    def events(
        self, since_seq: int = 0, since: float = 0.0, wait: float = 0.0, limit: int = 500
    ) -> dict[str, Any]:
        """A page of the journal: `entries`, `next_seq`, `more`; waits for one if there is none."""
        query = {"since_seq": since_seq, "since": f"{since:.6f}", "wait": wait, "limit": limit}
        timeout = self._timeout + wait
        url = f"/api/v1/events?{urlencode(query)}"
        return self._call("GET", url, timeout=timeout, of=shape.EVENTS)

    def down(self, by: str) -> dict[str, Any]:
        """Asks to give every machine back; returns at once."""
        return self._call("POST", "/api/v1/down", {"by": by})

    def adopt(self, ledger_id: str, by: str) -> dict[str, Any]:
        """Takes the machines of another ledger for ours; returns at once."""
        return self._call("POST", "/api/v1/adopt", {"ledger_id": ledger_id, "by": by})

    def preempt(self, node_id: str, notice: float | None, by: str) -> dict[str, Any]:
        """Takes a node as its market would: at once, or `notice` seconds after a notice."""
        body = {"notice": notice, "by": by}
        return self._call("POST", _node(node_id, "preempt"), body, of=shape.TAKEN)

    def drain(self, node_id: str, seconds: float, by: str) -> dict[str, Any]:
        """Takes a node out of service within `seconds`."""
        return self._call("POST", _node(node_id, "drain"), {"seconds": seconds, "by": by})

    def undrain(self, node_id: str, by: str) -> dict[str, Any]:
        """Takes a drain back."""
        return self._call("POST", _node(node_id, "undrain"), {"by": by})

    def scale(
        self, model: str, replicas: int | None, seconds: float | None, by: str
    ) -> dict[str, Any]:
        """Holds a model at `replicas`; `None` gives it back to the autoscaler."""
        body = {"replicas": replicas, "seconds": seconds, "by": by}
        return self._call("POST", f"/api/v1/models/{quote(model, safe='')}/scale", body)

    def reload(self, by: str) -> dict[str, Any]:
        """Has the configuration read again; answers with what came of it.

        That may take its time, so a daemon that answers nothing at all is found out first.
        """
        self.status()
        body = {"by": by}
        return self._call(
            "POST", "/api/v1/reload", body, timeout=_RELOAD_TIMEOUT, of=shape.RELOADED
        )

    def _call(
        self,
        method: str,
        url: str,
        body: Any = None,
        timeout: float | None = None,
        of: shape.Check = shape.ACCEPTED,
    ) -> dict[str, Any]:
        """`of`: what the answer must look like. Raises `NotReachable` when nobody answers, or
        somebody who is no daemon; `UsageError` when what was asked cannot be meant; `OnlyObserves`
        when nothing is acted on; `ElasticdError` when the answer is no."""
        connection = _UnixConnection(self.path, timeout or self._timeout)
        try:
            payload = None if body is None else json.dumps(body)
            connection.request(method, url, payload, {"Content-Type": "application/json"})
            response = connection.getresponse()
            text = response.read(_LARGEST_ANSWER)
        except PermissionError as bad:
            raise NotReachable(
                f"{self.path}: not allowed; run this as the daemon's user or in its group"
            ) from bad
        except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError) as bad:
            raise NotReachable(
                f"no daemon answers at {self.path}; start it with `elasticd run`, "
                "or name another with -c FILE or --socket PATH"
            ) from bad
        except TimeoutError as bad:
            raise NotReachable(
                f"the daemon at {self.path} takes connections and does not answer within "
                f"{timeout or self._timeout:g} s; see its log"
            ) from bad
        except (OSError, http.client.HTTPException) as bad:
            raise NotReachable(f"the daemon at {self.path} does not answer: {bad!r}") from bad
        finally:
            connection.close()
        return self._understood(response.status, text, of)

    def _understood(self, status: int, content: bytes, of: shape.Check) -> dict[str, Any]:
        """Nothing is concluded from an answer that is none."""
        try:
            data = json.loads(content, parse_constant=_no_number)
        except (ValueError, RecursionError):
            data = None
        if status >= 400:
            raise _refusal(status, data if isinstance(data, dict) else {})
        wrong = "it is no JSON" if data is None else next(of(data, ""), "")
        if not 200 <= status < 300:
            wrong = f"status {status}"
        if wrong or not isinstance(data, dict):
            raise NotReachable(
                f"what answers at {self.path} is no daemon of this version of elasticd ({wrong}); "
                "see what listens there, and whether versions are mixed"
            )
        return data


_REFUSALS = {400: UsageError, 404: UsageError, 503: NotReachable}
"""What a status says of the request: it cannot be meant, or nobody is there to take it."""


def _node(node_id: str, what: str) -> str:
    return f"/api/v1/nodes/{quote(node_id, safe='')}/{what}"


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def _refusal(status: int, data: dict[str, Any]) -> ElasticdError:
    told = data.get("error")
    if not isinstance(told, str) or not told:
        told = f"the daemon refused with status {status}"
    if data.get("observe_only") is True:
        return OnlyObserves(told)
    return _REFUSALS.get(status, ElasticdError)(told)
