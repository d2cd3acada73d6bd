"""Where the daemon keeps things on this host: places that cannot work are told, not tried."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from elasticd.settings.configuration import Configuration
from elasticd.settings.document import Place
from elasticd.settings.draft import Draft, Finding

_SOCKET_LIMIT = 107
"""Bytes of a Unix socket's path that Linux takes."""

_STATE: Place = ("state_dir",)
_SOCKET: Place = ("admin", "socket")


def impossible_places(draft: Draft, *, look_on_host: bool) -> Iterator[Finding]:
    """`look_on_host`: also what stands there now."""
    configuration = Configuration(draft.path, draft.settings, {}, {})
    yield from _state_dir(configuration.state_dir, look_on_host=look_on_host)
    yield from _socket(configuration, look_on_host=look_on_host)


def _state_dir(state_dir: Path, *, look_on_host: bool) -> Iterator[Finding]:
    if not str(state_dir).isascii():
        yield Finding(
            _STATE,
            f"{state_dir} has letters outside ASCII, and Ray, whose sockets and token lie there, "
            "cannot use such a path; write an absolute path of plain letters. Names of models and "
            "other directories may have any letters",
        )
    elif look_on_host and (file := _file_in_the_way(state_dir)):
        yield Finding(_STATE, f"{file} is a file, so {state_dir} cannot be a directory; move one")


def _socket(configuration: Configuration, *, look_on_host: bool) -> Iterator[Finding]:
    given, path = configuration.settings.admin.socket, configuration.admin_socket
    size = len(str(path).encode())
    if size > _SOCKET_LIMIT:
        yield Finding(
            _SOCKET if given else _STATE,
            f"the admin socket's path has {size} bytes and Linux takes {_SOCKET_LIMIT}: "
            f"{path}; set admin.socket or a shorter state_dir",
        )
    elif given is None:
        return
    elif path.name == "" or given.endswith("/") or (look_on_host and path.is_dir()):
        yield Finding(_SOCKET, f"{given} is a directory; write the path of a socket in one")
    elif look_on_host and (file := _file_in_the_way(path.parent)):
        yield Finding(_SOCKET, f"{file} is a file, so there can be no {path}; move one")


def _file_in_the_way(directory: Path) -> Path | None:
    """The part of a directory's path that is no directory."""
    for place in (directory, *directory.parents):
        try:
            if place.exists():
                return None if place.is_dir() else place
        except OSError:
            return None  # of what may not be looked at, nothing can be said
    return None
