"""The ways in which a replica can fail a request; each class is a rule of what happens next."""

from __future__ import annotations

from typing import NamedTuple

from multidict import CIMultiDict

from elasticd.gateway import sse


class Head(NamedTuple):
    """Status and end-to-end headers of the engine's answer."""

    status: int
    headers: CIMultiDict[str]
    events: bool
    """Whether the body is a stream of server-sent events."""
    json: bool
    """Whether the body is one JSON value."""


def head_of(status: int, headers: CIMultiDict[str]) -> Head:
    """The head with these headers."""
    kind = headers.get("Content-Type", "")
    json = kind.startswith("application/json")
    return Head(status, headers, not json and kind.startswith(sse.MEDIA_TYPE), json)


class Opening(NamedTuple):
    """The start of an answer: what can be sent at once, and whether that is all of it."""

    head: Head
    data: bytes
    complete: bool


class ReplicaFailed(Exception):
    """The replica did not answer, or not to the end."""


class ReplicaRefused(ReplicaFailed):
    """It never took the request."""


class ReplicaBusy(ReplicaRefused):
    """It answered that it cannot serve now (status 503): alive, and worth asking again later."""


class ReplicaLeaving(ReplicaFailed):
    """It is to go, and the request would not be done there in time: left while all is well."""


class OutOfReach(ReplicaFailed):
    """Our own machine lacks what it takes to ask it, for a moment: says nothing of the replica."""


class ReplicaLost(ReplicaFailed):
    """The connection broke, or the engine died, after the request was sent.

    `gone`: the replica itself is no more; else it lives and only this request was lost.
    """

    gone = False


class ReplicaOdd(ReplicaLost):
    """It lives, and answers a question of ours with what is no answer."""


class ReplicaSilent(ReplicaFailed):
    """It sent nothing for so many seconds. `everywhere`: to none of its streams."""

    def __init__(self, seconds: float, *, everywhere: bool = False) -> None:
        to_whom = " to all its streams" if everywhere else ""
        super().__init__(f"silent for {seconds:.1f} s{to_whom}")
        self.seconds = seconds
        self.everywhere = everywhere


class EngineFault(ReplicaFailed):
    """A whole answer that says the engine failed (500, 502, 504). The request may be to blame."""

    def __init__(self, opening: Opening) -> None:
        super().__init__(f"status {opening.head.status}")
        self.opening = opening


class OutOfResources(Exception):
    """Our own machine has no descriptors, ports or memory left: says nothing of the replica."""


_STOPPING = b"cannot schedule new futures after shutdown"
"""vLLM that shuts down and takes nothing new, although its `/health` is still fine."""

_DEAD = (b"EngineCore encountered an issue", b"EngineDeadError")
"""vLLM whose engine process has died; its HTTP side follows soon."""

_STRANGER = b"wrong or missing key"
"""The guard of another engine, which has this replica's address now."""

_LONGEST_ERROR = 16 * 1024


def failure_told(status: int, data: bytes) -> ReplicaFailed | None:
    """What an engine says of itself in the start of an answer: it is going, or already dead."""
    if len(data) > _LONGEST_ERROR:
        return None
    if status == 401:
        return ReplicaRefused("another engine has its address") if _STRANGER in data else None
    if status != 500 and not (status == 200 and data.startswith(b'data: {"error"')):
        return None
    if any(words in data for words in _DEAD):
        dead = ReplicaLost("its engine has died")
        dead.gone = True
        return dead
    return ReplicaRefused("it is shutting down") if _STOPPING in data else None
