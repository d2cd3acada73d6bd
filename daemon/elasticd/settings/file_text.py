"""The text of a configuration file, or one sentence that says why it has none.

Reading must end: a reload that waits for ever keeps every later one out, and a command that does
tells nobody anything. So only regular files of bearable size are read, and not for long.
"""

from __future__ import annotations

import os
import queue
import stat
import threading
from collections.abc import Callable
from pathlib import Path

from elasticd.errors import UsageError

LARGEST = 4 * 1024 * 1024
"""Bytes."""

PATIENCE = 20.0
"""Seconds in which a file that can be read at all has been read."""

_KINDS: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a named pipe (FIFO)"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
)


def read_text(path: Path, patience: float = PATIENCE) -> str:
    """The text, of a file in UTF-8. Raises `UsageError`, after `patience` seconds at the latest."""
    try:
        return _in_time(path, patience).decode("utf-8-sig")
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file; give the configuration with -c FILE") from None
    except UnicodeDecodeError as bad:
        raise UsageError(f"{path}: not UTF-8 (byte {bad.start}); save it as UTF-8") from bad
    except OSError as bad:
        raise UsageError(f"{path}: cannot be read: {bad.strerror}") from bad


def _in_time(path: Path, patience: float) -> bytes:
    """In a thread of its own, which stays behind where the file system does not answer."""
    answers: queue.SimpleQueue[bytes | BaseException] = queue.SimpleQueue()

    def read() -> None:
        try:
            answers.put(_read(path))
        except BaseException as raised:
            answers.put(raised)

    threading.Thread(target=read, name="configuration", daemon=True).start()
    try:
        answer = answers.get(timeout=patience)
    except queue.Empty:
        raise UsageError(
            f"{path}: was not read within {patience:g} s; see whether the file system it lies on "
            "answers"
        ) from None
    if isinstance(answer, BaseException):
        raise answer
    return answer


def _read(path: Path) -> bytes:
    _check_kind(path, path.stat().st_mode)  # before it is opened: some devices act on that
    # Between the two calls it may have become a pipe that nobody writes to: do not wait for one.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        found = os.fstat(file.fileno())
        _check_kind(path, found.st_mode)
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise UsageError(
            f"{path}: larger than {LARGEST >> 20} MiB; a configuration is not: name the right file"
        )
    return data


def _check_kind(path: Path, mode: int) -> None:
    if stat.S_ISREG(mode):
        return
    kind = next((name for is_that, name in _KINDS if is_that(mode)), "no regular file")
    raise UsageError(f"{path}: {kind}; the configuration must be a regular file")
