"""What an engine's guard tells of its engine to whoever has the key."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from tokenizers import Tokenizer, models

from elasticd.node.engine_facts import FACTS_PATH, TOKENIZER_PATH
from elasticd.node.engine_guard import KeyGuard
from elasticd.node.engine_reasoning import REASONING_PATH

KEY = (b"authorization", b"Bearer sesame")


def vllm(*, scale_out: bool = False, **changes: Any) -> SimpleNamespace:
    """The objects of a vLLM server, as far as they are looked at."""
    chat = SimpleNamespace(
        override_max_tokens=None,
        default_sampling_params={"temperature": 0.7, "max_tokens": 2048},
        parser_cls=None,
        model_config=SimpleNamespace(max_model_len=4096),
        enable_force_include_usage=False,
        renderer=SimpleNamespace(
            tokenizer=SimpleNamespace(_tokenizer=Tokenizer(models.WordLevel({"a": 0}, "a")))
        ),
    )
    vars(chat).update(changes)
    args = SimpleNamespace(enable_scale_out=scale_out)
    return SimpleNamespace(state=SimpleNamespace(openai_serving_chat=chat, args=args))


async def told(
    path: str, app: Any, *headers: tuple[bytes, bytes], body: bytes = b""
) -> tuple[int, bytes]:
    sent: list[dict[str, Any]] = []

    async def engine(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("the engine knows no such path")

    parts = [{"body": body[:1], "more_body": True}, {"body": body[1:]}]

    async def receive() -> dict[str, Any]:
        assert path == REASONING_PATH, "the guard reads nothing else"
        return parts.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "path": path, "headers": list(headers), "app": app}
    await KeyGuard(engine)(scope, receive, send)
    start, answer = sent
    assert dict(start["headers"])[b"content-length"] == str(len(answer["body"])).encode()
    return start["status"], answer["body"]


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELASTICD_ENGINE_KEY", "sesame")


async def test_what_it_takes_to_go_on_with_its_answers_is_told() -> None:
    status, body = await told(FACTS_PATH, vllm(), KEY)
    assert status == 200
    assert json.loads(body) == {
        "v": 1,
        "tokenizer": True,
        "parser": False,
        "scale_out": False,
        "reasoning": False,
        "fingerprint": None,
        "max_model_len": 4096,
        "max_tokens": 2048,
        "most_tokens": None,
        "penalties": False,
        "always_usage": False,
    }


async def test_penalties_that_are_the_servers_own_are_told() -> None:
    usual = {"presence_penalty": 0.5}
    _, body = await told(FACTS_PATH, vllm(default_sampling_params=usual), KEY)
    assert json.loads(body)["penalties"] is True


async def test_that_it_derenders_is_told() -> None:
    _, body = await told(FACTS_PATH, vllm(scale_out=True), KEY)
    assert json.loads(body)["scale_out"] is True


async def test_the_tokenizer_is_the_one_in_use() -> None:
    status, body = await told(TOKENIZER_PATH, vllm(), KEY)
    assert status == 200
    assert Tokenizer.from_str(body.decode()).get_vocab() == {"a": 0}


@pytest.mark.parametrize("path", [FACTS_PATH, TOKENIZER_PATH])
async def test_nobody_is_told_without_the_key(path: str) -> None:
    status, _ = await told(path, vllm())
    assert status == 401


@pytest.mark.parametrize("path", [FACTS_PATH, TOKENIZER_PATH])
async def test_an_engine_that_is_not_as_expected_tells_nothing(path: str) -> None:
    for app in (SimpleNamespace(state=SimpleNamespace()), vllm(renderer=None), None):
        status, _ = await told(path, app, KEY)
        assert status == 404


async def test_how_much_was_reasoning_is_not_told_where_it_is_not_known() -> None:
    """A question that cannot be answered is refused, and breaks nothing."""
    for question in (b"{", b'{"ids": [1]}'):
        status, _ = await told(REASONING_PATH, vllm(), KEY, body=question)
        assert status == 404
    status, _ = await told(REASONING_PATH, vllm(), body=b"{}")
    assert status == 401


class Given:
    """A model of pydantic's, as far as it is used."""

    def __init__(self, given: Any) -> None:
        self.given = given

    @classmethod
    def model_validate(cls, given: Any) -> Given:
        return cls(given)


class Derenderer:
    """vLLM's, which parses each piece in order; its parser counts what it was given."""

    class parser:  # noqa: N801
        def __init__(self) -> None:
            self.pieces: list[int] = []

        def count_reasoning_tokens(self, ids: tuple[int, ...]) -> int:
            return len(ids) * 100 + len(self.pieces)

    def _derender_chat_stream_parsed(
        self,
        parser_cls: Any,
        model: str,
        generate_chunk: Given,
        state: Given,
        chat_request: Given,
        prompt_tokens: int | None,
        prompt_token_ids: list[int],
    ) -> None:
        parser = parser_cls()
        parser.pieces += state.given["output_chunk_lens"]
        assert chat_request.given == {"model": "m"}
        assert prompt_token_ids == [9, 9]
        assert generate_chunk.given["choices"][0]["finish_reason"] == "stop"


async def test_how_much_was_reasoning_is_counted_by_the_engines_own_parser() -> None:
    app = vllm()
    app.state.online_derenderer = Derenderer()
    asked = {"request": {"model": "m"}, "prompt": [9, 9], "ids": [1, 2, 3], "lens": [2, 1]}
    body = json.dumps({**asked, "reason": "stop"}).encode()
    status, answer = await told(REASONING_PATH, app, KEY, body=body)
    assert (status, json.loads(answer)) == (200, {"reasoning_tokens": 302})
