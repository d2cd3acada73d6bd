"""Which faults ended the controller lately: `faults.json` in the state directory.

A fault is restarted away from twice. The third time of the same one is no accident: from then on
the controller only looks on (`runtime.observe_only`), for one that goes on crashing, or acts half
broken, may do harm. A healthy while clears the memory, and so does another version of elasticd.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType

import structlog

from elasticd import __version__

TIMES = 3
"""The same fault so often, and nothing more is tried."""

_FORMAT = 1
_MOST_FAULTS = 8
"""Different faults that are remembered: two that take turns are each counted."""

_LONGEST_MESSAGE = 300
_LARGEST = 256 * 1024
"""Bytes of the file; ours holds some thousands."""

_LATEST = 1e11
"""Seconds since 1970 that no clock of ours shows."""

_OURS = str(Path(__file__).resolve().parent.parent) + os.sep

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault. `first_at` and `last_at` in seconds since 1970."""

    signature: str
    message: str
    times: int
    first_at: float
    last_at: float


@dataclass(frozen=True, slots=True)
class Remembered:
    """What the file holds. `version` of elasticd that wrote it; empty: there is none."""

    version: str = ""
    faults: tuple[Fault, ...] = ()
    one_more_try: bool = False

    @property
    def repeated(self) -> Fault | None:
        """The fault that has come too often, if one has."""
        return next((fault for fault in self.faults if fault.times >= TIMES), None)


class Unreadable(Exception):
    """A file that none of ours wrote, or that cannot be read."""


def file_of(state_dir: Path) -> Path:
    """Where the faults are."""
    return state_dir / "faults.json"


def read_faults(path: Path) -> Remembered:
    """Raises `Unreadable`."""
    try:
        told = json.loads(_content(path))
        version = str(told["version"])
        if told["format"] != _FORMAT or version != __version__:
            return Remembered(f"{version} (format {told['format']})")
        faults = tuple(_fault(**each) for each in told["faults"])
        return Remembered(version, faults, told["one_more_try"] is True)
    except FileNotFoundError:
        return Remembered()
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as bad:
        raise Unreadable(repr(bad)[:_LONGEST_MESSAGE]) from bad


class FaultMemory:
    """Every change is on the disk when it returns. A damaged file remembers nothing, and says so;
    a disk that takes nothing is warned of: then this life alone remembers."""

    def __init__(self, state_dir: Path) -> None:
        self._path = file_of(state_dir)
        self._faults: tuple[Fault, ...] = ()
        self._one_more_try = False
        self._read()

    @property
    def repeated(self) -> Fault | None:
        """The fault that has come too often, if one has."""
        return Remembered(faults=self._faults).repeated

    @property
    def only_observe(self) -> bool:
        """Whether the controller must not act: unless a person wants one more try."""
        return self.repeated is not None and not self._one_more_try

    def note(self, error: BaseException, at: float) -> Fault:
        """One more fault, at `at` (seconds since 1970). The try that a person wanted is over."""
        signature = signature_of(error)
        message = " ".join(repr(root_of(error)).split())[:_LONGEST_MESSAGE]
        known = next((f for f in self._faults if f.signature == signature), None)
        if known is None:
            fault = Fault(signature, message, 1, at, at)
        else:
            fault = replace(known, message=message, times=known.times + 1, last_at=at)
        others = [f for f in self._faults if f.signature != signature]
        self._faults = (fault, *others)[:_MOST_FAULTS]
        self._one_more_try = False
        self._write()
        return fault

    def allow_one_more_try(self) -> None:
        """A person stops the observing controller: the next one acts until the next fault."""
        self._one_more_try = True
        self._write()

    def clear(self) -> None:
        """A healthy while: whatever comes now is new."""
        if self._faults:
            _log.info("faults_forgotten", faults=[fault.signature for fault in self._faults])
        self._faults, self._one_more_try = (), False
        try:
            self._path.unlink(missing_ok=True)
        except OSError as problem:
            self._not_written(problem)

    def _read(self) -> None:
        try:
            remembered = read_faults(self._path)
        except Unreadable as bad:
            _log.warning(
                "faults_not_read",
                path=str(self._path),
                problem=str(bad),
                effect="the faults of earlier lives are not counted",
            )
            return
        if remembered.version not in ("", __version__):
            _log.info("faults_of_another_version_forgotten", path=str(self._path))
            return
        self._faults, self._one_more_try = remembered.faults, remembered.one_more_try

    def _write(self) -> None:
        told = {
            "format": _FORMAT,
            "version": __version__,
            "one_more_try": self._one_more_try,
            "faults": [asdict(fault) for fault in self._faults],
        }
        draft = self._path.with_name(f".{self._path.name}.draft")
        try:
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as out:
                json.dump(told, out, indent=1)
                out.flush()
                os.fsync(out.fileno())
            draft.replace(self._path)
        except OSError as problem:
            self._not_written(problem)

    def _not_written(self, problem: OSError) -> None:
        _log.warning(
            "faults_not_written",
            path=str(self._path),
            problem=str(problem),
            effect="the next start counts otherwise",
        )


def _content(path: Path) -> bytes:
    """Of a file, and of no more than ours would hold: a pipe would be waited for for ever, a device
    would fill the memory. Raises `OSError`, `ValueError` for what is none of ours."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("not a file")
        content = file.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise ValueError(f"larger than {_LARGEST} bytes")
    return content


def signature_of(error: BaseException) -> str:
    """The kind of the error that was at the root and the innermost place of ours it came through.

    Not the line and not the message: the same fault may tell of another node each time.
    """
    root = root_of(error)
    kind = type(root).__qualname__
    places = [place for place in _places(root.__traceback__) if place]
    return f"{kind} in {places[-1]}" if places else kind


def root_of(error: BaseException) -> BaseException:
    """What our own wrappers wrap: the first of a group, the cause of what was raised from it."""
    seen: set[int] = set()
    while id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        elif error.__cause__ is not None:
            error = error.__cause__
    return error


def _places(trace: TracebackType | None) -> Iterator[str]:
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_filename.startswith(_OURS):
            yield f"{code.co_filename.removeprefix(_OURS)} {code.co_qualname}"
        trace = trace.tb_next


def _fault(signature: str, message: str, times: int, first_at: float, last_at: float) -> Fault:
    """Raises `TypeError` for what none of ours wrote."""
    texts = isinstance(signature, str) and isinstance(message, str)
    numbers = all(isinstance(at, int | float) and 0 <= at < _LATEST for at in (first_at, last_at))
    if not (texts and numbers and type(times) is int and times > 0):
        raise TypeError("an entry that none of ours wrote")
    return Fault(signature, message, times, float(first_at), float(last_at))
