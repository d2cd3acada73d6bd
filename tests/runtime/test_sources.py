"""Sources are resolved once, kept, and asked for patiently, at a hub on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from elasticd.runtime import hub_api
from elasticd.runtime.hub_api import Hub
from elasticd.runtime.source_file import SourceFile
from elasticd.runtime.sources import Pauses, SourceResolver
from tests.weights.hub import REPO, RunningHub, running_hub, some_bytes

SOURCE = f"hf:{REPO}@main"
SIZE = 100_000
QUICK = Pauses(first=0.01, longest=0.05)
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "torch_dtype": "bfloat16",
    "vocab_size": 100,
}


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[RunningHub]:
    with running_hub(tmp_path / "hub") as running:
        running.put("config.json", json.dumps(CONFIG).encode())
        running.put("model.safetensors", some_bytes(SIZE))
        yield running


class Watched:
    """A resolver that runs, and the news of it."""

    def __init__(self, state_dir: Path, endpoint: str, token: str | None) -> None:
        self.news = asyncio.Event()
        self.resolver = SourceResolver(
            SourceFile(state_dir), Hub(endpoint, token), self.news.set, QUICK
        )

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                await self.news.wait()
                self.news.clear()

    @property
    def commit(self) -> str | None:
        known = self.resolver.resolved().get(SOURCE)
        return known.commit if known else None

    def problem(self, source: str = SOURCE) -> str:
        return self.resolver.problems().get(source, "")


@contextlib.asynccontextmanager
async def _running(
    state_dir: Path, hub: RunningHub, *sources: str, token: str | None = None, endpoint: str = ""
) -> AsyncIterator[Watched]:
    state_dir.mkdir(exist_ok=True)
    watched = Watched(state_dir, endpoint or hub.endpoint, token)
    watched.resolver.set_sources(sources or (SOURCE,))
    running = asyncio.create_task(watched.resolver.run())
    try:
        yield watched
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


def _ask(hub: RunningHub, **mood: Any) -> Any:
    return asyncio.to_thread(hub.mood, **mood)


async def test_a_source_becomes_its_commit_and_its_models_shape(
    hub: RunningHub, tmp_path: Path
) -> None:
    async with _running(tmp_path / "state", hub) as watched:
        await watched.until(lambda: watched.commit)
        known = watched.resolver.resolved()[SOURCE]
    assert known.commit == hub.commit
    assert known.shape is not None
    assert (known.shape.layers, known.shape.weight_bytes) == (2, SIZE)
    assert not watched.resolver.problems()
    kept = tmp_path / "state" / "sources.json"
    assert kept.stat().st_mode & 0o777 == 0o600


async def test_a_revision_that_moved_on_does_not_change_what_runs(
    hub: RunningHub, tmp_path: Path
) -> None:
    async with _running(tmp_path / "state", hub) as watched:
        await watched.until(lambda: watched.commit)
    hub.mood(commit="f" * 40)
    asked = len(hub.calls())
    async with _running(tmp_path / "state", hub) as again:
        assert again.commit == hub.commit
        again.resolver.set_sources((SOURCE,))
        assert again.commit == hub.commit
    assert len(hub.calls()) == asked


async def test_a_source_that_was_taken_out_and_named_anew_is_asked_anew(
    hub: RunningHub, tmp_path: Path
) -> None:
    async with _running(tmp_path / "state", hub) as watched:
        await watched.until(lambda: watched.commit)
        await _ask(hub, commit="f" * 40)
        watched.resolver.set_sources(())
        watched.resolver.set_sources((SOURCE,))
        assert watched.commit is None
        await watched.until(lambda: watched.commit)
        assert watched.commit == "f" * 40


async def test_a_commit_learnt_once_holds_although_the_rest_came_later(
    hub: RunningHub, tmp_path: Path
) -> None:
    hub.mood(only="files", status=500)
    async with _running(tmp_path / "state", hub) as watched:
        await watched.until(watched.problem)
        assert watched.commit is None
        await _ask(hub, commit="f" * 40)
        await watched.until(lambda: watched.commit)
        assert watched.commit == hub.commit


@pytest.mark.parametrize(
    "content",
    [
        *("", "{", "[]", '{"version": 1}', '{"version": 99}', "\xff"),
        '{"version": 1, "sources": {"hf:lab/tiny@main": {"commit": "../../x", "complete": true}}}',
        pytest.param("[" * 100_000, id="deep"),
    ],
)
async def test_a_damaged_file_is_asked_for_again(
    hub: RunningHub, tmp_path: Path, content: str
) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "sources.json").write_text(content, encoding="latin-1")
    async with _running(tmp_path / "state", hub) as watched:
        assert watched.commit is None
        await watched.until(lambda: watched.commit)


async def test_a_commit_that_is_named_needs_no_hub(hub: RunningHub, tmp_path: Path) -> None:
    exact = f"hf:{REPO}@{'a' * 40}"
    async with _running(tmp_path / "state", hub, exact, endpoint="http://127.0.0.1:9") as watched:
        assert watched.resolver.resolved()[exact].commit == "a" * 40
        await watched.until(lambda: watched.problem(exact))
    assert "http://127.0.0.1:9 cannot be reached" in watched.problem(exact)
    assert "is this machine offline?" in watched.problem(exact)


async def test_a_gated_source_is_resolved_once_the_licence_is_accepted(
    hub: RunningHub, tmp_path: Path
) -> None:
    hub.mood(token="the-token")
    async with _running(tmp_path / "state", hub) as watched:
        await watched.until(watched.problem)
        assert "accept its licence" in watched.problem()
        assert watched.commit is None
        watched.resolver.set_sources((SOURCE,), Hub(hub.endpoint, "the-token"))
        await watched.until(lambda: watched.commit)
        assert not watched.problem()


async def test_the_token_is_in_no_file_and_no_sentence(hub: RunningHub, tmp_path: Path) -> None:
    hub.mood(token="the-token")
    async with _running(tmp_path / "state", hub, token="another-token") as watched:
        await watched.until(watched.problem)
        assert "another-token" not in watched.problem()
        watched.resolver.set_sources((SOURCE,), Hub(hub.endpoint, "the-token"))
        await watched.until(lambda: watched.commit)
    assert "the-token" not in (tmp_path / "state" / "sources.json").read_text()


async def test_an_unknown_repository_keeps_nobody_else_waiting(
    hub: RunningHub, tmp_path: Path
) -> None:
    async with _running(tmp_path / "state", hub, "hf:lab/nobody@main", SOURCE) as watched:
        await watched.until(lambda: watched.commit and watched.problem("hf:lab/nobody@main"))
    assert "check the name" in watched.problem("hf:lab/nobody@main")


async def test_a_call_that_hangs_is_said_and_asked_again(
    hub: RunningHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_api, "CALL_TIMEOUT", 0.5)
    hub.mood(only="api", hang=True, times=1)
    async with _running(tmp_path / "state", hub) as watched:
        await watched.until(lambda: "no answer within 0.5 s" in watched.problem())
        await watched.until(lambda: watched.commit)


async def test_a_model_without_a_readable_configuration_is_served_and_told(
    hub: RunningHub, tmp_path: Path
) -> None:
    hub.put("config.json", b'{"layers": "many"}')
    async with _running(tmp_path / "state", hub) as watched:
        await watched.until(lambda: watched.commit)
        assert watched.resolver.resolved()[SOURCE].shape is None
        assert "how much memory it needs is not known" in watched.problem()
    (hub.folder / REPO / "config.json").unlink()
    async with _running(tmp_path / "other", hub) as watched:
        await watched.until(lambda: watched.commit)
        assert "has no config.json" in watched.problem()


async def test_a_page_that_is_not_a_hubs_is_told_as_such(hub: RunningHub, tmp_path: Path) -> None:
    hub.mood(only="api", status=200, times=1)
    async with _running(tmp_path / "state", hub) as watched:
        await watched.until(lambda: "answers that are not a hub's" in watched.problem())
        await watched.until(lambda: watched.commit)


def _list(**changes: Any) -> str:
    listed = {"rfilename": "model.safetensors", "size": SIZE}
    return json.dumps({"sha": "a" * 40, "siblings": [listed], **changes})


@pytest.mark.parametrize(
    ("mood", "told"),
    [
        ({"only": "files", "says": "[", "repeat": 1_000_000}, "its config.json cannot be read"),
        ({"only": "files", "says": "{"}, "its config.json cannot be read"),
        ({"only": "files", "says": '{"a": ' + "[" * 400 + "]" * 400 + "}"}, "deeper than 64"),
        ({"only": "files", "says": "[" * 1000, "repeat": 5000}, "more than 4 MiB"),
        ({"only": "api", "says": "[", "repeat": 1_000_000}, "not a hub's"),
        ({"only": "api", "says": "[" * 10_000, "repeat": 3400}, "more than 32 MiB"),
        ({"only": "api", "says": "null"}, "not a hub's"),
        ({"only": "api", "says": "[]"}, "not a hub's"),
        ({"only": "api", "says": _list(sha=5)}, "not a hub's"),
        ({"only": "api", "says": _list(sha="../../x")}, "not a hub's"),
        ({"only": "api", "says": _list(siblings=5)}, "not a hub's"),
        ({"only": "api", "says": _list(siblings=[5])}, "not a hub's"),
        ({"only": "api", "says": _list(siblings=[{"rfilename": 5}])}, "not a hub's"),
        (
            {"only": "api", "says": _list(siblings=[{"rfilename": "a.bin", "size": -5}])},
            "not a hub's",
        ),
        (
            {"only": "api", "says": _list(siblings=[{"rfilename": "a\ud800.bin", "size": 5}])},
            "the hub lists a file with the name 'a\\ud800.bin'",
        ),
        ({"only": "api", "circle": True}, "redirects in a circle"),
    ],
)
async def test_whatever_a_hub_answers_is_a_problem_of_that_source_alone(
    hub: RunningHub, tmp_path: Path, mood: dict[str, Any], told: str
) -> None:
    hub.mood(**mood)
    async with _running(tmp_path / "state", hub) as watched:
        await watched.until(lambda: told in watched.problem())
        assert len(watched.problem()) <= 400
        assert watched.commit is None
        await _ask(hub)
        await watched.until(lambda: watched.commit)


async def test_a_fault_in_reading_an_answer_is_a_problem_of_its_source_too(
    hub: RunningHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: bytes) -> Any:
        raise RuntimeError("nobody foresaw that \ud800")

    with monkeypatch.context() as patched:
        patched.setattr(hub_api, "read_json", broken)
        async with _running(tmp_path / "state", hub) as watched:
            await watched.until(lambda: "nobody foresaw that" in watched.problem())
            assert "\ud800" not in watched.problem()
            patched.undo()
            await watched.until(lambda: watched.commit)


async def test_a_disk_that_takes_nothing_does_not_stop_it(hub: RunningHub, tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    (state / ".sources.json.draft").mkdir()
    async with _running(state, hub) as watched:
        await watched.until(lambda: watched.commit)
    assert not (state / "sources.json").exists()
