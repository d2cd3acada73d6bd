"""What our programs put outside of a test's own folder goes with the test."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def short_temp(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A temporary directory for programs that are started: short enough for Ray's sockets."""
    with tempfile.TemporaryDirectory(prefix="t-", ignore_cleanup_errors=True) as folder:
        monkeypatch.setenv("TMPDIR", folder)
        yield
