"""Files of a repository to the disk, verified. Blocking; in the fetcher's process only.

`huggingface_hub` knows the hub: tokens, mirrors, redirects, rate limits. Its own download of a
directory throws the beginning of a file away when it is interrupted; ours goes on where it was,
and compares every file with the hash that the hub has of it.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

import huggingface_hub
from huggingface_hub import constants
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled
from huggingface_hub.file_download import http_get
from huggingface_hub.utils import build_hf_headers
from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_random_exponential

from elasticd.weights.answers import (
    HubAway,
    HubRefused,
    away,
    circle,
    not_a_hub,
    refusal,
    usual_hub,
    without_secrets,
)
from elasticd.weights.choice import BadEntry, HubFile, listed_file, needed_files
from elasticd.weights.source import HubSource
from elasticd.weights.store import WeightsStore

# More connections than that only take turns on one network card and one disk.
CONNECTIONS = 4
LIST_TIMEOUT = 30.0
# The library holds so many bytes back before it writes them: a kill or a break loses them.
constants.DOWNLOAD_CHUNK_SIZE = 1 << 18
LONGEST_PAUSE = 60.0
_NO_ANSWER_OF_A_HUB = (ValueError, TypeError, LookupError, AttributeError, RecursionError)
_DISK_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG, errno.EROFS})

# Once is bad luck on the way; twice, what the hub has and what it tells of it do not agree.
_WRONG_ARRIVALS = 2

T = TypeVar("T")
Note = Callable[[str], None]


class _Wrong(HubAway):
    """What arrived is not the file."""


def download(store: WeightsStore, source: HubSource, note: Note) -> None:
    """Brings everything an engine needs into `store.partial`, for ever if the hub is away.

    `note` hears what holds it up, and an empty text when it goes on. Raises `HubRefused`,
    `NoWeights`, `DiskFull`, `OSError` of the disk.
    """
    files = _patiently(lambda: needed_files(_list(source)), note)
    store.begin(files)
    pool = ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="fetch")
    coming = [pool.submit(_fetch, store, source, file, note) for file in files]
    try:
        ended, _ = wait(coming, return_when=FIRST_EXCEPTION)
        for one in ended:
            one.result()
    finally:
        # One that fails for good ends all: the others may take hours, or wait for the hub for ever.
        pool.shutdown(wait=False, cancel_futures=True)


def _fetch(store: WeightsStore, source: HubSource, file: HubFile, note: Note) -> None:
    final, part = store.final(file), store.part(file)
    if final.is_file() and final.stat().st_size == file.size:
        return  # it got its name after it was verified
    final.parent.mkdir(parents=True, exist_ok=True)
    arrivals = _Arrivals(source, file, part)
    try:
        _patiently(arrivals.bring, note)
    except OSError as problem:
        raise store.explained(problem) from problem
    part.rename(final)


class _Arrivals:
    """All that arrives of one file, until it is right or wrong too often."""

    def __init__(self, source: HubSource, file: HubFile, part: Path) -> None:
        self._source = source
        self._file = file
        self._part = part
        self._wrong = 0

    def bring(self) -> None:
        """Raises `HubAway` when another try may help, `HubRefused` when none will."""
        try:
            _bring(self._source, self._file, self._part)
        except _Wrong as wrong:
            self._wrong += 1
            if self._wrong < _WRONG_ARRIVALS:
                raise
            raise HubRefused(
                f"{self._source}: {wrong}, {self._wrong} times in a row: the hub's list and its "
                "content do not agree; set weights.mirror to another hub, or name another commit"
            ) from wrong


def _list(source: HubSource) -> Sequence[HubFile]:
    with _understood(source):
        info = huggingface_hub.HfApi(token=_token()).model_info(
            source.repo, revision=source.revision, files_metadata=True, timeout=LIST_TIMEOUT
        )
    try:
        return [_hub_file(sibling) for sibling in info.siblings or ()]
    except BadEntry as bad:
        raise HubRefused(f"{source}: what {usual_hub(os.environ)} says is odd: {bad}") from bad


def _token() -> str | bool:
    """What we were given. Never the library's own choice: a token that somebody stored on this
    machine for the public hub would go to whatever mirror is configured."""
    return os.environ.get("HF_TOKEN") or False


def _hub_file(sibling: Any) -> HubFile:
    lfs = sibling.lfs
    if lfs:
        return listed_file(sibling.rfilename, lfs.size, sha256=lfs.sha256)
    return listed_file(sibling.rfilename, sibling.size or 0, blob_id=sibling.blob_id or "")


def _bring(source: HubSource, file: HubFile, part: Path) -> None:
    """What is missing of one file. Raises `HubAway`, also if what arrived is not the file."""
    with part.open("a+b") as out:
        if out.tell() > file.size:
            out.truncate(0)
        verified = _Verified(out, file)
        if verified.size < file.size:
            with _understood(source), _from_the_beginning_if_wrong(out):
                http_get(
                    huggingface_hub.hf_hub_url(source.repo, file.path, revision=source.revision),
                    cast("BinaryIO", verified),
                    resume_size=verified.size,
                    # Compressed on the way, a file could not be continued from the middle.
                    headers={**build_hf_headers(token=_token()), "Accept-Encoding": "identity"},
                )
        problem = verified.problem()
        if problem:
            out.truncate(0)
            raise _Wrong(problem)
        out.flush()
        os.fsync(out.fileno())


@contextmanager
def _from_the_beginning_if_wrong(out: BinaryIO) -> Iterator[None]:
    try:
        yield
    except _Wrong:
        out.truncate(0)
        raise


class _Verified:
    """A file that grows at its end, hashed on the way. What `http_get` needs of a file."""

    def __init__(self, out: BinaryIO, file: HubFile) -> None:
        self._out = out
        self._file = file
        self.size = 0
        self._digest = self._fresh()
        self._hash_what_is_there()

    def write(self, chunk: bytes) -> int:
        """Raises `_Wrong` for what goes on after the file's end: a disk must not fill with it."""
        if self.size + len(chunk) > self._file.size:
            raise _Wrong(f"{self._file.path} is longer than the {self._file.size} bytes it has")
        self._digest.update(chunk)
        self.size += len(chunk)
        return self._out.write(chunk)

    def tell(self) -> int:
        return self._out.tell()

    def seek(self, position: int) -> int:
        return self._out.seek(position)

    def truncate(self) -> int:
        """Called when the hub sends the file from its beginning after all."""
        size = self._out.truncate()
        self._hash_what_is_there()
        return size

    def problem(self) -> str:
        """What is wrong with the content; empty: it is the file."""
        if self.size != self._file.size:
            return f"{self._file.path} came with {self.size} of {self._file.size} bytes"
        wanted = self._file.sha256 or self._file.blob_id
        if wanted and self._digest.hexdigest() != wanted:
            return f"{self._file.path} came damaged (its hash differs)"
        return ""

    def _fresh(self) -> hashlib._Hash:
        if self._file.sha256 or not self._file.blob_id:
            return hashlib.sha256()
        # Small files are known by git's own hash of them.
        digest = hashlib.sha1(usedforsecurity=False)
        digest.update(b"blob %d\0" % self._file.size)
        return digest

    def _hash_what_is_there(self) -> None:
        self._digest, self.size = self._fresh(), 0
        self._out.seek(0)
        while chunk := self._out.read(1 << 20):
            self._digest.update(chunk)
            self.size += len(chunk)


@contextmanager
def _understood(source: HubSource) -> Iterator[None]:
    """Turns the errors of the hub's library into `HubRefused` and `HubAway`, not the disk's."""
    endpoint = usual_hub(os.environ)
    try:
        yield
    except _Wrong:
        raise
    except HfHubHTTPError as answer:
        has_token = bool(_token())
        code = answer.response.headers.get("X-Error-Code", "")
        status = answer.response.status_code
        raise refusal(status, code, source, endpoint, has_token=has_token) from answer
    except HFValidationError as odd:
        raise HubRefused(
            f"{source} is no repository of a hub: {without_secrets(str(odd))}"
        ) from odd
    except OfflineModeIsEnabled as offline:
        raise HubRefused(
            f"{source} is not on this node, and HF_HUB_OFFLINE is set here: unset it, or put the "
            "weights there"
        ) from offline
    except Exception as broken:
        # Which library carries HTTP below the hub's is its own affair and has changed twice.
        if isinstance(broken, OSError) and (broken.filename or broken.errno in _DISK_ERRORS):
            raise
        if type(broken).__name__ == "TooManyRedirects":
            raise circle(endpoint) from broken
        if isinstance(broken, _NO_ANSWER_OF_A_HUB):
            raise not_a_hub(broken, endpoint) from broken
        raise away(broken, endpoint) from broken


def _patiently(call: Callable[[], T], note: Note) -> T:
    """Until it works or fails for good, with growing pauses; `note` hears why it waits."""

    def tell(state: RetryCallState) -> None:
        if state.outcome is not None:
            note(f"{state.outcome.exception()}; trying again")

    made = Retrying(
        retry=retry_if_exception_type(HubAway),
        wait=wait_random_exponential(multiplier=1.0, min=0.5, max=LONGEST_PAUSE),
        before_sleep=tell,
    )(call)
    note("")
    return made
