"""Journals in files: an export replays as its ledger does, and holds no secret."""

from __future__ import annotations

import gzip
import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from elasticd.core.codec import to_json
from elasticd.core.decide import Core
from elasticd.core.events import Configured, ReplicaSeen
from elasticd.core.specs import Engine, FleetSpec, ModelSpec
from elasticd.runtime.core_memory import core_of, remembered
from elasticd.runtime.journal_files import (
    NotAnExport,
    export,
    export_entries,
    export_size,
    ledger_entries,
    ledger_size,
)
from elasticd.runtime.journal_quiet import pack, unpacked
from elasticd.runtime.journal_scrub import Scrubber
from elasticd.runtime.ledger import JournalLimits, LedgerStore
from elasticd.runtime.ledger_journal import JournalEntry
from elasticd.settings.engine_env import HIDDEN
from tests.runtime.fakes import fleet_spec

PLAN: dict[str, Any] = {"actions": [], "reasons": [], "wake_at": 1.5}


def entries(count: int) -> list[JournalEntry]:
    return [
        JournalEntry(
            1_700_000_000.1 + n,
            ({"type": "DownRequested", "by": f"ü {n}"},),
            PLAN,
            n + 1,
            1,
            pack([f"[{n},0,[1,2]]", "[5]"]) if n % 2 else b"",
            "0.1+abc",
        )
        for n in range(count)
    ]


def test_a_ledger_is_read_page_by_page_and_whole(tmp_path: Path) -> None:
    store = LedgerStore(tmp_path, JournalLimits())
    written = entries(120)
    store.commit(1.0, [], [replace(entry, seq=0) for entry in written])
    with closing(sqlite3.connect(f"file:{tmp_path}/ledger.sqlite?mode=ro", uri=True)) as db:
        assert ledger_size(db) == 120
        reading = ledger_entries(db)
        assert next(reading) == written[0]
        store.commit(2.0, [], [replace(written[0], seq=0)])  # nothing holds the writer back
        assert list(reading)[:-1] == written[1:]
    store.close()


def test_an_export_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "journal.gz"
    told = [*entries(5), JournalEntry(0.0, (), {}, 6, damaged=True)]
    done = export(told, 6, path)
    assert (done.entries, done.hidden, done.size) == (6, 0, path.stat().st_size)
    assert export_size(path) == 6
    again = list(export_entries(path))
    assert [replace(entry, quiet=b"") for entry in again[:5]] == [
        replace(entry, quiet=b"") for entry in told[:5]
    ]
    assert [unpacked(entry.quiet) for entry in again] == [unpacked(e.quiet) for e in told]
    assert (again[5].seq, again[5].damaged) == (6, True)
    with gzip.open(path, "rt") as file:
        assert '"quiet":[[1,0,[1,2]],[5]]' in file.read()  # for people, too


def test_an_export_overwrites_nothing(tmp_path: Path) -> None:
    path = tmp_path / "journal.gz"
    path.write_text("mine")
    with pytest.raises(FileExistsError):
        export(entries(1), 1, path)
    assert path.read_text() == "mine"


def test_a_file_that_was_cut_is_read_up_to_there_and_the_rest_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "journal.gz"
    export(entries(500), 500, path)
    path.write_bytes(path.read_bytes()[:-300])
    *whole, last = export_entries(path)
    assert last.damaged
    assert [entry.seq for entry in whole] == list(range(1, last.seq))


@pytest.mark.parametrize(
    "line", ["{", "[]", '{"seq":2,"epoch":1}', '{"seq":2,"epoch":1,"events":{},"plan":{}}']
)
def test_a_line_that_is_no_entry_is_damaged_and_the_next_is_read(tmp_path: Path, line: str) -> None:
    path = tmp_path / "journal.gz"
    export(entries(3), 3, path)
    with gzip.open(path, "rt") as file:
        lines = file.read().splitlines()
    with gzip.open(path, "wt") as file:
        file.write("\n".join([*lines[:2], line, lines[3]]))
    assert [(entry.seq, entry.damaged) for entry in export_entries(path)] == [
        (1, False),
        (2, True),
        (3, False),
    ]


@pytest.mark.parametrize(
    "text", [b"", b"hello", gzip.compress(b"[]\n", mtime=0), gzip.compress(b"{}\n", mtime=0)]
)
def test_what_is_no_export_is_refused(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "x"
    path.write_bytes(text)
    with pytest.raises(NotAnExport):
        export_size(path)


def test_a_newer_export_is_refused_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "x"
    head = {"elasticd_journal": 2, "version": "9.9", "entries": 0}
    path.write_bytes(gzip.compress(json.dumps(head).encode()))
    with pytest.raises(NotAnExport, match=r"exported by elasticd 9\.9 in a newer format"):
        export_size(path)


SECRET = "s3cr3t-Value_0123456789"


def configured(engine: Engine) -> Configured:
    model: ModelSpec = replace(fleet_spec().models[0], engine=engine)
    return Configured(FleetSpec("c", (model,), ()))


@pytest.mark.parametrize(
    "event",
    [
        configured(Engine("command", argv=("serve", "--api-key", SECRET, "--port", "{port}"))),
        configured(Engine("command", argv=("serve", f"--auth-token={SECRET}"))),
        configured(Engine("vllm", args=(("some-api-key", SECRET),))),
        configured(Engine("vllm", env=(("MY_TOKEN", SECRET),))),
        ReplicaSeen("r", 1, "n", "stopped", log_tail=(f"401 for https://me:{SECRET}@hub/x",)),
        ReplicaSeen("r", 1, "n", "stopped", log_tail=(f"Authorization: Bearer {SECRET}",)),
        ReplicaSeen("r", 1, "n", "stopped", log_tail=(f'{{"api_key": "{SECRET}"}}',)),
        ReplicaSeen("r", 1, "n", "stopped", log_tail=(f"HF_TOKEN={SECRET} is not valid",)),
        ReplicaSeen("r", 1, "n", "stopped", error=f"token hf_{SECRET.replace('-', '')} expired"),
    ],
)
def test_what_looks_like_a_secret_is_taken_out_and_counted(event: Any) -> None:
    scrubber = Scrubber()
    text = json.dumps(scrubber.clean(to_json(event)))
    assert SECRET not in text
    assert SECRET.replace("-", "") not in text
    assert HIDDEN in text
    assert scrubber.hidden == 1


def test_a_secret_is_taken_out_of_what_the_core_remembers_too() -> None:
    engine = Engine(
        "vllm", ("serve", "--api-key", SECRET), (("x-api-key", SECRET),), (("A_TOKEN", SECRET),)
    )
    core = Core("ledger", 1)
    core.step(1.0, [configured(engine)])
    scrubber = Scrubber()
    cleaned = scrubber.clean({"memory": remembered(core)})
    assert SECRET in json.dumps(remembered(core))
    assert SECRET not in json.dumps(cleaned)
    assert core_of(cleaned["memory"]).status(2.0) == core.status(2.0)


def test_what_is_no_secret_stays_as_it_is() -> None:
    plain = configured(
        Engine(
            "command",
            argv=("serve", "--port", "{port}", "--max-num-batched-tokens", "8192", "--key"),
            args=(("max-model-len", "32768"), ("tokenizer-mode", "auto")),
            env=(("MAX_TOKENS", "100"), ("HF_TOKEN", HIDDEN), ("URL", "https://hub/x@main")),
        )
    )
    seen = ReplicaSeen("r", 1, "n", "ready", "http://10.0.0.1:8000", log_tail=("token 5 of 9",))
    scrubber = Scrubber()
    for event in (plain, seen):
        assert scrubber.clean(to_json(event)) == to_json(event)
    assert scrubber.hidden == 0
