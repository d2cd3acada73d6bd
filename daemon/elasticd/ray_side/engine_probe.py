"""Asks an engine how it is: one health call, one look at its counters. Blocking, no ray."""

from __future__ import annotations

import http.client
from dataclasses import dataclass

from elasticd.ray_side.progress import Counters, read_counters

TIMEOUT = 5.0


@dataclass(frozen=True, slots=True)
class EngineAddress:
    """Where an engine listens, and its key."""

    host: str
    port: int
    key: str

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"


def healthy(engine: EngineAddress) -> bool:
    """Whether it answers 200."""
    return not health_problem(engine)


def health_problem(engine: EngineAddress) -> str:
    """What keeps it from being healthy, in a few words; empty: it answers 200. An engine without
    `/health` is asked for its models."""
    path = "/health"
    try:
        status, _ = _get(engine, path)
        if status == 404:
            path = "/v1/models"
            status, _ = _get(engine, path)
    except ConnectionRefusedError:
        return "nobody listens"
    except TimeoutError:
        return f"no answer to {path} within {TIMEOUT:g} s"
    except (OSError, http.client.HTTPException) as broken:
        return f"{path} not answered: {broken or type(broken).__name__}"
    return "" if status == 200 else f"{path} answered {status}"


def counters(engine: EngineAddress) -> Counters | None:
    """Its counters; `None` if it does not answer now."""
    try:
        status, body = _get(engine, "/metrics")
    except (OSError, http.client.HTTPException):
        return None
    return read_counters(body.decode(errors="replace")) if status == 200 else Counters()


def _get(engine: EngineAddress, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(engine.host, engine.port, timeout=TIMEOUT)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {engine.key}"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()
