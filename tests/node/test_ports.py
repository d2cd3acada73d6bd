"""Engine ports: free, and claimed."""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path

import pytest

from elasticd.node.ports import claim_port, forget_claim


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_claimed_port_is_not_given_twice_until_it_is_let_go() -> None:
    port = _free_port()
    given, claim = claim_port("127.0.0.1", port, port)
    assert given == port
    with pytest.raises(OSError, match="no free port"):
        claim_port("127.0.0.1", port, port)
    os.close(claim)
    os.close(claim_port("127.0.0.1", port, port)[1])


def test_a_port_on_which_somebody_listens_is_passed_over() -> None:
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen(1)
        port = stranger.getsockname()[1]
        with pytest.raises(OSError, match=rf"pid {os.getpid()} \(.*widen the range"):
            claim_port("127.0.0.1", port, port)


def test_a_foreign_address_is_one_clear_message() -> None:
    with pytest.raises(OSError, match=r"cannot listen on 192\.0\.2\.254"):
        claim_port("192.0.2.254", 20000, 20001)


def test_a_claim_that_is_over_leaves_no_file_and_a_living_one_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    port = _free_port()
    _, claim = claim_port("127.0.0.1", port, port)
    forget_claim(port)
    assert len(list(tmp_path.iterdir())) == 1
    os.close(claim)
    forget_claim(port)
    assert list(tmp_path.iterdir()) == []
    os.close(claim_port("127.0.0.1", port, port)[1])
