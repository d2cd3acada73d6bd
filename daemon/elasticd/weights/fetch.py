"""Fetches the weights of one commit to this machine; a process of its own.

    python -m elasticd.weights.fetch --weights hf:REPO@COMMIT --dir DIR

Mirror and token come by the environment (`HF_ENDPOINT`, `HF_TOKEN`) and are never repeated. What
it does is told on standard output, see `progress`; exit 0: the weights are complete. It may be
killed at any time: the next one goes on where it was. One process fetches, others that want the
same wait for it.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from elasticd.weights.answers import HubRefused
from elasticd.weights.choice import NoWeights
from elasticd.weights.progress import Fetched, FetchFailed, FetchProgress, Told, to_line
from elasticd.weights.source import HubSource, parse_source
from elasticd.weights.store import DiskFull, WeightsStore

TELL_EVERY = 1.0
LOCK_EVERY = 0.2
# Seconds over which the rate is taken: shorter jumps, longer lags.
RATE_WINDOW = 10.0


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 complete, 1 failed (the last line says why), 2 wrong usage."""
    parser = argparse.ArgumentParser(prog="python -m elasticd.weights.fetch")
    parser.add_argument("--weights", required=True, help="hf:REPO@COMMIT")
    parser.add_argument("--dir", required=True, type=Path, help="the weights directory")
    options = parser.parse_args(argv)
    try:
        source = parse_source(options.weights)
    except ValueError as problem:
        parser.error(str(problem))
    store = WeightsStore(options.dir.absolute(), source)
    try:
        _bring(store, source)
    except (HubRefused, NoWeights, DiskFull) as problem:
        return _failed(str(problem))
    except OSError as problem:
        return _failed(f"{problem}: the weights directory is {options.dir}; weights.dir sets it")
    _tell_at_last(Fetched(str(store.directory)))
    return 0


def _bring(store: WeightsStore, source: HubSource) -> None:
    if store.complete:
        return
    reporter = _Reporter(store)
    threading.Thread(target=reporter.run, name="progress", daemon=True).start()
    while not store.try_lock():
        reporter.note("another replica of this node is fetching them")
        time.sleep(LOCK_EVERY)
    reporter.note("")
    if not store.complete:
        _download(store, source, reporter)
        store.finish()


def _download(store: WeightsStore, source: HubSource, reporter: _Reporter) -> None:
    """Imports the hub's library only now: it reads its environment when it is imported."""
    # Its bars and warnings would show addresses of content, which are signed.
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    os.environ["HF_HUB_VERBOSITY"] = "error"
    os.environ.setdefault("HF_HUB_DOWNLOAD_TIMEOUT", "30")
    try:
        from elasticd.weights.download import download
    except ImportError as missing:
        raise HubRefused(
            f"{sys.executable} cannot import huggingface_hub ({missing}): install it there, as "
            "vLLM does"
        ) from missing
    download(store, source, reporter.note)


class _Reporter:
    """Tells how far it is, from what lies on the disk, whoever put it there."""

    def __init__(self, store: WeightsStore) -> None:
        self._store = store
        self._note = ""
        self._news = threading.Event()
        self._seen: deque[tuple[float, int]] = deque()

    def note(self, text: str) -> None:
        """What holds it up from now on; empty: nothing. News is told at once."""
        if text != self._note:
            self._note = text
            self._news.set()

    def run(self) -> None:
        """For the life of the process."""
        while True:
            _tell(self._progress(time.monotonic()))
            self._news.wait(TELL_EVERY)
            self._news.clear()

    def _progress(self, now: float) -> FetchProgress:
        if self._store.complete:
            return FetchProgress(note="they are here")
        files = self._store.files()
        if files is None:
            return FetchProgress(note=self._note or "asking the hub")
        done, total = self._store.bytes_there(files), sum(file.size for file in files)
        self._seen.append((now, done))
        while now - self._seen[0][0] > RATE_WINDOW:
            self._seen.popleft()
        since, before = self._seen[0]
        rate = (done - before) / (now - since) if now > since else None
        return FetchProgress(done, total, rate if rate is None else max(0.0, rate), self._note)


_telling = threading.Lock()


def _tell(told: Told) -> None:
    with _telling:
        print(to_line(told), flush=True)


def _tell_at_last(told: Told) -> None:
    """Nothing is told after it: threads that still wait have nothing more to say."""
    _telling.acquire()
    print(to_line(told), flush=True)


def _failed(sentence: str) -> int:
    _tell_at_last(FetchFailed(sentence))
    return 1


if __name__ == "__main__":
    code = main()
    # Threads that wait for the hub are not worth waiting for: what they have is on the disk.
    sys.stdout.flush()
    os._exit(code)
