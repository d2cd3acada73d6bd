"""What our programs put outside of a test's own folder goes with the test."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import pytest

from tests.node.fake_agent import FakeAgent, running_agent


@pytest.fixture(autouse=True)
def short_temp(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A temporary directory for programs that are started: short enough for Ray's sockets."""
    with tempfile.TemporaryDirectory(prefix="t-", ignore_cleanup_errors=True) as folder:
        monkeypatch.setenv("TMPDIR", folder)
        yield


@pytest.fixture
def agent() -> Iterator[FakeAgent]:
    """An agent that lets the machine `n-1` in."""
    with running_agent() as fake:
        yield fake
