"""Reading a configuration always ends, with its text or with one sentence."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest

from elasticd.errors import UsageError
from elasticd.settings import file_text
from elasticd.settings.document import read_document
from elasticd.settings.file_text import LARGEST, read_text


def refused(path: Path) -> str:
    with pytest.raises(UsageError) as bad:
        read_document(path)
    return str(bad.value)


def test_what_is_no_regular_file_is_named_and_never_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path must be short
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        (tmp_path / "linked").symlink_to("pipe")
        for name, kind in (
            ("pipe", "a named pipe (FIFO)"),
            ("linked", "a named pipe (FIFO)"),
            ("socket", "a socket"),
            (".", "a directory"),
            ("/dev/null", "a character device"),
            ("/dev/zero", "a character device"),
        ):
            told = refused(Path(name))
            assert told == f"{name}: {kind}; the configuration must be a regular file"


def test_a_file_of_more_than_4_mib_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    path = tmp_path / "big.yaml"
    path.write_text("#" * LARGEST)
    assert read_document(path).data is None
    path.write_text("#" * (LARGEST + 1))
    assert refused(path).endswith("larger than 4 MiB; a configuration is not: name the right file")


def test_a_file_system_that_does_not_answer_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = threading.Event()

    def hang(_path: Path) -> bytes:
        never.wait(60)
        return b""

    monkeypatch.setattr(file_text, "_read", hang)
    with pytest.raises(UsageError, match=r"was not read within 0\.05 s"):
        read_text(tmp_path / "elasticd.yaml", patience=0.05)
    never.set()


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    assert "symbolic links" in refused(loop)
    assert "no such file" in refused(tmp_path / "none")
    (tmp_path / "bytes").write_bytes(b"a: \xff")
    assert "not UTF-8 (byte 3)" in refused(tmp_path / "bytes")
