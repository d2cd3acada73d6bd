"""Which request paths mean what they seem to mean.

The gateway compares a path as the client wrote it and passes it on unchanged, with the engine's
key; HTTP libraries and engines resolve `..` and decode `%2e`. Where the two readings differ a
client could reach what lies beside `/v1/`.
"""

from __future__ import annotations

from urllib.parse import unquote

MODELS = "/v1/models"
READING = ("GET", "HEAD")

_OURS_ALONE = frozenset(("render", "derender"))
"""Last segments of what engines do for the gateway, with parts of requests that it has checked."""

_ASKED = ("/v1/chat/completions", "/v1/completions")
"""Nearly every request."""

_LAYERS = 3
"""Percent-encodings taken off one after the other; an honest path has one."""


def needs_replica(method: str, raw_path: str) -> bool:
    """Whether only a replica could answer; all else the gateway answers itself."""
    if raw_path in _ASKED:
        return True
    if raw_path == MODELS or (raw_path.startswith(f"{MODELS}/") and method in READING):
        return False
    return raw_path.startswith("/v1/") and not _OURS_ALONE & set(_decoded(raw_path).split("/"))


def _decoded(path: str) -> str:
    if "%" in path:
        for _ in range(_LAYERS):
            path = unquote(path)
    return path


def is_plain(raw_path: str) -> bool:
    """Whether no segment is `.` or `..`, also when decoded or with `\\` read as `/`.

    A path that is still encoded after `_LAYERS` decodings is not plain: it only hides something,
    and decoding to the end takes quadratic time.
    """
    if "." not in raw_path and "%" not in raw_path:
        return True  # nearly every request
    path = _decoded(raw_path)
    if unquote(path) != path:
        return False
    return not {".", ".."} & set(path.replace("\\", "/").split("/"))
