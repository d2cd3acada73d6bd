"""Runs the fake hub for a test, and speaks with it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPO = "lab/tiny"
CONFIG = {"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2}


@dataclass(frozen=True)
class RunningHub:
    """A fake hub that runs, with the folder of its repositories."""

    endpoint: str
    folder: Path

    @property
    def commit(self) -> str:
        """What `main` of `REPO` is, unless a mood says otherwise."""
        return hashlib.sha1(REPO.encode()).hexdigest()

    @property
    def weights(self) -> str:
        return f"hf:{REPO}@{self.commit}"

    def put(self, path: str, data: bytes) -> bytes:
        """A file of `REPO`."""
        place = self.folder / REPO / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
        return data

    def mood(self, **mood: Any) -> None:
        body = json.dumps(mood).encode()
        asked = urllib.request.Request(f"{self.endpoint}/_mood", body, method="PUT")
        urllib.request.urlopen(asked, timeout=10).close()

    def calls(self, part: str = "") -> list[dict[str, Any]]:
        """What it was asked so far, where `part` is in the path."""
        with urllib.request.urlopen(f"{self.endpoint}/_calls", timeout=10) as answer:
            return [call for call in json.load(answer) if part in call["path"]]

    def sent(self, part: str) -> int:
        """Bytes of content sent."""
        return sum(int(call["sent"]) for call in self.calls(part))


@contextlib.contextmanager
def running_hub(folder: Path) -> Iterator[RunningHub]:
    """A hub with one small repository, until the block ends."""
    program = str(Path(__file__).parent / "fake_hub.py")
    with subprocess.Popen(
        [sys.executable, program, str(folder)], stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            hub = RunningHub(f"http://127.0.0.1:{int(process.stdout.readline())}", folder)
            hub.put("config.json", json.dumps(CONFIG).encode())
            hub.put("tokenizer.json", b"{}")
            hub.put("README.md", b"for people")
            yield hub
        finally:
            process.kill()


def some_bytes(size: int, seed: int = 0) -> bytes:
    """Bytes that look like weights."""
    block = hashlib.sha256(str(seed).encode()).digest() * 1024
    return (block * (size // len(block) + 1))[:size]
