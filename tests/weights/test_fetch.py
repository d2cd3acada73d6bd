"""The fetcher as a process, with the hub's own library, against a hub on this machine."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub
import pytest

from tests.node.waiting import eventually
from tests.weights.fetcher import end, environment, fetch, refused, start
from tests.weights.hub import REPO, RunningHub, some_bytes

MIB = 1 << 20


def _files(directory: Path) -> set[str]:
    return {str(p.relative_to(directory)) for p in directory.rglob("*") if p.is_file()}


def test_the_stand_in_hub_satisfies_the_librarys_own_download(
    hub: RunningHub, tmp_path: Path
) -> None:
    data = hub.put("model.safetensors", some_bytes(MIB))
    place = huggingface_hub.snapshot_download(
        REPO, local_dir=tmp_path / "own", endpoint=hub.endpoint, token=False
    )
    assert Path(place, "model.safetensors").read_bytes() == data


def test_what_an_engine_needs_is_fetched_and_nothing_else(hub: RunningHub, tmp_path: Path) -> None:
    data = hub.put("model.safetensors", some_bytes(MIB))
    hub.put("pytorch_model.bin", some_bytes(MIB, 1))
    hub.put("original/consolidated.00.pth", some_bytes(MIB, 2))
    place = fetch(hub, tmp_path / "weights")
    assert place == tmp_path / "weights" / f"{REPO}@{hub.commit}"
    assert _files(place) == {"config.json", "tokenizer.json", "model.safetensors"}
    assert (place / "model.safetensors").read_bytes() == data


def test_complete_weights_need_no_hub(hub: RunningHub, tmp_path: Path) -> None:
    hub.put("model.safetensors", some_bytes(MIB))
    fetch(hub, tmp_path / "weights")
    asked = len(hub.calls())
    fetch(hub, tmp_path / "weights", HF_HUB_OFFLINE="1")
    assert len(hub.calls()) == asked


def test_a_killed_fetch_is_never_used_and_goes_on_where_it_was(
    hub: RunningHub, tmp_path: Path
) -> None:
    data = hub.put("model.safetensors", some_bytes(4 * MIB))
    hub.mood(rate=MIB)
    first = start(hub, tmp_path / "weights")
    eventually(lambda: hub.sent("/content/") > MIB)
    first.kill()
    end(first)
    assert not list((tmp_path / "weights").rglob(f"tiny@{hub.commit}"))
    hub.mood()
    place = fetch(hub, tmp_path / "weights")
    assert (place / "model.safetensors").read_bytes() == data
    resumed = int(hub.calls("/content/")[-1]["range"].removeprefix("bytes=").rstrip("-"))
    assert resumed > MIB // 2
    assert _files(place) == {"config.json", "tokenizer.json", "model.safetensors"}


def test_two_at_once_transfer_each_file_once(hub: RunningHub, tmp_path: Path) -> None:
    sizes = {f"model-{n}-of-3.safetensors": MIB for n in (1, 2, 3)}
    for name, size in sizes.items():
        hub.put(name, some_bytes(size))
    hub.mood(rate=MIB)
    both = [start(hub, tmp_path / "weights") for _ in range(2)]
    ends = [end(process) for process in both]
    assert [code for code, _, _ in ends] == [0, 0]
    assert {name: hub.sent(f"/content/{REPO}/{name}") for name in sizes} == sizes


def test_the_one_who_waits_takes_over_when_the_other_is_killed(
    hub: RunningHub, tmp_path: Path
) -> None:
    data = hub.put("model.safetensors", some_bytes(2 * MIB))
    hub.mood(rate=MIB // 2)
    first = start(hub, tmp_path / "weights")
    eventually(lambda: hub.sent("/content/") > 0)
    second = start(hub, tmp_path / "weights")
    assert second.stdout is not None
    while "another replica" not in second.stdout.readline():
        pass
    hub.mood()
    first.kill()
    end(first)
    code, _, output = end(second)
    assert code == 0, output
    place = tmp_path / "weights" / f"{REPO}@{hub.commit}"
    assert (place / "model.safetensors").read_bytes() == data


def test_a_connection_that_breaks_is_resumed(hub: RunningHub, tmp_path: Path) -> None:
    data = hub.put("model.safetensors", some_bytes(MIB))
    hub.mood(only="content", drop_after=300_000, times=2)
    place = fetch(hub, tmp_path / "weights")
    assert (place / "model.safetensors").read_bytes() == data
    assert [call["range"] is None for call in hub.calls("/content/")] == [True, False, False]
    assert hub.sent("/content/") < 1.2 * MIB


def test_what_comes_damaged_is_fetched_again(hub: RunningHub, tmp_path: Path) -> None:
    data = hub.put("model.safetensors", some_bytes(MIB))
    hub.mood(only="content", damaged=True, times=1)
    place = fetch(hub, tmp_path / "weights")
    assert (place / "model.safetensors").read_bytes() == data
    assert hub.sent("/content/") == 2 * MIB


def test_what_always_comes_damaged_ends_the_fetch_with_a_sentence(
    hub: RunningHub, tmp_path: Path
) -> None:
    hub.put("model.safetensors", some_bytes(MIB))
    hub.mood(only="content", damaged=True)
    said = refused(hub, tmp_path / "weights")
    assert "model.safetensors came damaged (its hash differs), 2 times in a row" in said
    assert hub.sent("/content/") == 2 * MIB


def test_a_fetch_that_fails_does_not_wait_for_what_still_comes(
    hub: RunningHub, tmp_path: Path
) -> None:
    hub.put("model-1-of-2.safetensors", some_bytes(40 * MIB))
    hub.put("model-2-of-2.safetensors", some_bytes(MIB // 4))
    hub.mood(only="content", longer=MIB, rate=MIB // 4)
    assert "model-2-of-2.safetensors is longer" in refused(hub, tmp_path / "weights")
    assert hub.sent("model-1-of-2") < 20 * MIB


def test_what_is_shorter_than_the_hub_says_ends_the_fetch_with_a_sentence(
    hub: RunningHub, tmp_path: Path
) -> None:
    listed = [{"rfilename": "model.safetensors", "size": 2 * MIB, "blobId": "x"}]
    said = json.dumps({"sha": hub.commit, "id": REPO, "siblings": listed})
    hub.put("model.safetensors", some_bytes(MIB))
    hub.mood(only="api", says=said)
    assert f"came with {MIB} of {2 * MIB} bytes, 2 times" in refused(hub, tmp_path / "weights")


def test_what_goes_on_after_its_end_is_cut_and_never_fills_the_disk(
    hub: RunningHub, tmp_path: Path
) -> None:
    hub.put("model.safetensors", some_bytes(MIB))
    hub.mood(only="content", longer=400 * MIB)
    process = start(hub, tmp_path / "weights")
    largest = 0
    while process.poll() is None:
        for part in (tmp_path / "weights").rglob("*.part"):
            with contextlib.suppress(FileNotFoundError):
                largest = max(largest, part.stat().st_size)
    code, _, output = end(process)
    assert code == 1
    assert "model.safetensors is longer than the" in output
    assert largest <= 2 * MIB
    assert hub.sent("/content/") < 50 * MIB


def test_a_redirect_in_a_circle_is_said_as_such(hub: RunningHub, tmp_path: Path) -> None:
    hub.put("model.safetensors", some_bytes(MIB))
    for only in ("api", "content"):
        hub.mood(only=only, circle=True)
        process = start(hub, tmp_path / "weights")
        assert process.stdout is not None
        line = ""
        while "trying again" not in line:
            line = process.stdout.readline()
            assert line, "it gave up"
        process.kill()
        end(process)
        assert f"{hub.endpoint} redirects in a circle" in line


@pytest.mark.parametrize(
    "name",
    [
        "a\0b.json",
        "a\ud800.json",
        "",
        ".",
        "a//b.json",
        "n" * 300 + ".json",
        "\x1b.json",
    ],
)
def test_a_file_that_no_disk_takes_is_one_sentence(
    hub: RunningHub, tmp_path: Path, name: str
) -> None:
    hub.put("model.safetensors", some_bytes(MIB))
    hub.mood(extra=[{"rfilename": name, "size": 2, "blobId": "x"}])
    said = refused(hub, tmp_path / "weights")
    assert "the hub lists a file with the name" in said
    assert said.isprintable()


@pytest.mark.parametrize(
    "entry",
    [
        {"rfilename": 5, "size": 2},
        {"rfilename": None, "size": 2},
        {"rfilename": "a.json", "size": "many"},
        {"rfilename": "a.json", "size": -5},
    ],
)
def test_an_entry_that_is_no_file_is_one_sentence(
    hub: RunningHub, tmp_path: Path, entry: dict[str, object]
) -> None:
    hub.put("model.safetensors", some_bytes(MIB))
    hub.mood(extra=[entry])
    assert "it lists" in refused(hub, tmp_path / "weights")


def test_an_oddly_named_file_that_nobody_needs_is_in_nobodys_way(
    hub: RunningHub, tmp_path: Path
) -> None:
    hub.put("model.safetensors", some_bytes(MIB))
    hub.mood(extra=[{"rfilename": "a\ud800.png", "size": 2, "blobId": "x"}])
    fetch(hub, tmp_path / "weights")


@pytest.mark.parametrize("status", [500, 503, 429])
def test_a_hub_on_a_bad_day_is_asked_again(hub: RunningHub, tmp_path: Path, status: int) -> None:
    hub.put("model.safetensors", some_bytes(MIB))
    hub.mood(status=status, times=2)
    code, _, output = end(start(hub, tmp_path / "weights"))
    assert code == 0, output


def test_an_unreachable_hub_is_said_and_asked_on(hub: RunningHub, tmp_path: Path) -> None:
    process = start(hub, tmp_path / "weights", HF_ENDPOINT="http://127.0.0.1:9")
    assert process.stdout is not None
    line = ""
    while "trying again" not in line:
        line = process.stdout.readline()
        assert line, "it gave up"
    process.kill()
    end(process)
    assert "http://127.0.0.1:9 cannot be reached" in line
    assert "weights.mirror may name a mirror" in line


def test_gated_weights_say_what_to_do(hub: RunningHub, tmp_path: Path) -> None:
    hub.put("model.safetensors", some_bytes(MIB))
    hub.mood(token="the-token")
    said = refused(hub, tmp_path / "weights")
    assert f"is gated (401 from {hub.endpoint})" in said
    assert f"accept its licence at {hub.endpoint}/{REPO} and set weights.token" in said
    said = refused(hub, tmp_path / "weights", HF_TOKEN="another-token")
    assert "with the account of weights.token" in said


def test_the_token_opens_and_is_shown_to_nobody_else(hub: RunningHub, tmp_path: Path) -> None:
    hub.put("model.safetensors", some_bytes(MIB))
    hub.mood(token="the-token", rate=MIB)
    process = start(hub, tmp_path / "weights", HF_TOKEN="the-token")
    eventually(lambda: hub.sent("/content/") > 0)
    words = Path(f"/proc/{process.pid}/cmdline").read_text()
    code, _, output = end(process)
    assert code == 0, output
    assert "the-token" not in words + output
    assert {call["auth"] for call in hub.calls("/resolve/")} == {"Bearer the-token"}
    assert {call["auth"] for call in hub.calls("/content/")} == {None}


def test_a_token_that_somebody_stored_on_the_machine_is_not_sent(
    hub: RunningHub, tmp_path: Path
) -> None:
    hub.put("model.safetensors", some_bytes(MIB))
    home = Path(environment(hub, tmp_path / "weights")["HF_HOME"])
    home.mkdir()
    (home / "token").write_text("somebodys-token")
    fetch(hub, tmp_path / "weights")
    assert {call["auth"] for call in hub.calls()} == {None}


def test_an_unknown_repository_and_an_unknown_revision_are_told_apart(
    hub: RunningHub, tmp_path: Path
) -> None:
    nobody = "hf:lab/nobody@" + "0" * 40
    assert "lab/nobody" in refused(hub, tmp_path / "weights", nobody)
    assert "knows no repository lab/nobody" in refused(
        hub, tmp_path / "weights", nobody, HF_TOKEN="any"
    )
    lost = f"hf:{REPO}@" + "0" * 40
    assert "knows no revision '000" in refused(hub, tmp_path / "weights", lost)


def test_a_repository_without_loadable_weights_says_what_it_holds(
    hub: RunningHub, tmp_path: Path
) -> None:
    hub.put("model-q4.gguf", some_bytes(MIB))
    said = refused(hub, tmp_path / "weights")
    assert "it holds .gguf files" in said
    assert "file:DIRECTORY" in said


def test_offline_nodes_say_so(hub: RunningHub, tmp_path: Path) -> None:
    assert "HF_HUB_OFFLINE is set" in refused(hub, tmp_path / "weights", HF_HUB_OFFLINE="1")


def test_a_directory_that_cannot_be_written_is_named(hub: RunningHub, tmp_path: Path) -> None:
    hub.put("model.safetensors", some_bytes(MIB))
    (tmp_path / "weights").write_text("a file stands here")
    said = refused(hub, tmp_path / "weights")
    assert str(tmp_path / "weights") in said
    assert "weights.dir sets it" in said


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 8 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)], capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip("mounting a small disk needs root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_disk_that_is_too_small_is_seen_before_anything_is_fetched(
    hub: RunningHub, small_disk: Path
) -> None:
    hub.put("model.safetensors", some_bytes(16 * MIB))
    said = refused(hub, small_disk)
    assert "16 MiB more needed" in said
    assert "8 MiB free" in said
    assert str(small_disk) in said
    assert not hub.calls("/content/")


def test_a_disk_that_fills_up_meanwhile_is_told_in_the_same_words(
    hub: RunningHub, small_disk: Path
) -> None:
    hub.put("model.safetensors", some_bytes(16 * MIB))
    unguarded = (
        "import sys; from elasticd.weights import fetch, store; store.RESERVE = -(1 << 30); "
        "sys.exit(fetch.main())"
    )
    ended = subprocess.run(
        [sys.executable, "-c", unguarded, "--weights", hub.weights, "--dir", str(small_disk)],
        env=environment(hub, small_disk),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 1
    assert "the disk is too small for the weights" in ended.stdout
    assert "0 B free" in ended.stdout
