"""Streams of real vLLM cut in many places: each goes on as if nothing had been.

    python -m tests.e2e.exact_cuts [--cuts 12] [--only NAME]

Two engines one after the other, with a parser and without. Every question is answered undisturbed
and then through an address that breaks after so many events, by the gateway itself; the client's
message, reasons, ids and usage must be the undisturbed ones. Exits 1 where one is not.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from elasticd.demo.texts import PLAIN
from elasticd.gateway.continuation.seam import MARK
from elasticd.routing_table import Endpoint
from elasticd.settings.paths import demo_model_dir
from tests.e2e.cut_proxy import CutProxy
from tests.e2e.memorised_model import PARSER_ARGS, TOOL_FIELDS, build_memorised_model
from tests.e2e.real_engine import KEY, real_engine
from tests.gateway.merged import Merged
from tests.gateway.test_continuation import continuing
from tests.traffic.tables import endpoint

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
_USAGE = {"stream_options": {"include_usage": True}}
_RUNNING = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}


@dataclass(frozen=True)
class Question:
    """One request, by what is special about it."""

    name: str
    fields: dict[str, Any]
    path: str = CHAT
    made: Callable[[list[int]], dict[str, Any]] | None = None
    """Fields made of the ids of the answer without them, so that they matter."""


def _stopped(ids: list[int]) -> dict[str, Any]:
    """By the token that first comes latest before the end."""
    late = max((ids.index(i), i) for i in set(ids[:-1]))
    return {"stop_token_ids": [late[1]]}


def _biased(ids: list[int]) -> dict[str, Any]:
    """Against a token from the middle on, wherever it stands."""
    return {"logit_bias": {str(ids[len(ids) // 2]): -100}}


def parsed_questions() -> list[Question]:
    """For an engine with a parser."""
    chats = {chat.name: chat.fields for chat in build_memorised_model()}
    plain = {"messages": [{"role": "user", "content": PLAIN[0].prompt}], "max_tokens": 300}
    usual = {"max_tokens": 700, **_USAGE}
    note, thought = chats["call 1"], chats["thought 0"]
    return [
        *(Question(name, {**fields, **usual}) for name, fields in chats.items()),
        Question("no thoughts", {**plain, **TOOL_FIELDS}),
        Question("limit in a call", {**note, **_USAGE, "max_tokens": 120}),
        Question("limit in a thought", {**thought, **_RUNNING, "max_completion_tokens": 60}),
        Question("ids", {**chats["call 3"], "max_tokens": 700, "return_token_ids": True}),
        Question("no limit", {**note, **_USAGE}),
        Question("tool_choice none", {**note, **usual, "tool_choice": "none"}),
        Question(
            "no thinking",
            {**thought, **usual, "chat_template_kwargs": {"enable_thinking": False}},
        ),
        Question("priority", {**note, **usual, "priority": 5}),
        Question("stop_token_ids", {**note, **usual}, made=_stopped),
        Question("stop_token_ids in a thought", {**thought, **usual}, made=_stopped),
        Question("logit_bias", {**thought, **usual}, made=_biased),
        Question("ignore_eos", {**thought, "max_tokens": 330, "ignore_eos": True}),
        Question("ignore_eos after a call", {**chats["call 0"], **usual, "ignore_eos": True}),
        Question("min_tokens", {**thought, "max_tokens": 300, "min_tokens": 290}),
    ]


def plain_questions() -> list[Question]:
    """For an engine without."""
    chat = {"messages": [{"role": "user", "content": PLAIN[1].prompt}], "max_tokens": 250}
    text = {"prompt": PLAIN[0].body[:20], "max_tokens": 200}
    special: dict[str, dict[str, Any]] = {
        "nothing": {},
        "tool_choice none": {**TOOL_FIELDS, "tool_choice": "none"},
        "chat_template_kwargs": {"chat_template_kwargs": {"enable_thinking": False}},
        "priority": {"priority": 5},
        "stop_token_ids": {},
        "logit_bias": {},
        "min_p": {"min_p": 0.1, "top_p": 0.9, "top_k": 5, "temperature": 0},
        "user": {"user": "u", "metadata": {"a": "b"}},
        "ids": {"return_token_ids": True},
    }
    made = {"stop_token_ids": _stopped, "logit_bias": _biased}
    chats = [
        Question(name, {**chat, **_USAGE, **more}, made=made.get(name))
        for name, more in special.items()
    ]
    common = [n for n in special if n not in ("tool_choice none", "chat_template_kwargs")]
    texts = [
        Question(f"{n}, text", {**text, **_USAGE, **special[n]}, TEXT, made.get(n)) for n in common
    ]
    return chats + texts


@dataclass
class Tally:
    """What came of it."""

    cuts: int = 0
    uncut: int = 0
    wrong: list[str] = field(default_factory=list)


async def ask(question: Question, *replicas: Endpoint) -> bytes:
    """The whole stream, as the gateway gives it."""
    async with continuing(*replicas) as s:
        fields = {"temperature": 0, "stream": True, "messages": None, **question.fields}
        async with s.post(question.path, **fields) as answer:
            body = await answer.read()
            assert answer.status == 200, body
            lost = [e["why"] for e in s.logs if e["event"] == "stream lost"]
            return body + b"".join(f": {why}\n\n".encode() for why in lost)


def meaning(body: bytes) -> dict[str, Any]:
    """All that may not differ."""
    merged = Merged(body)
    return {
        **merged.message,
        "finish": merged.finish,
        "ids": merged.ids,
        "usage": [_counts(usage) for usage in merged.usage[-1:]],
        "fingerprint": b"system_fingerprint" in body,
        "call ids": len(set(merged.call_ids)),
        "empty": 0 if merged.ids else merged.empty,
    }


def _counts(usage: dict[str, Any]) -> dict[str, Any]:
    """How many tokens are reasoning differs by one or two with which of them came together."""
    details = usage.get("completion_tokens_details")
    near = details and round(details["reasoning_tokens"], -1)
    return {**usage, "completion_tokens_details": near}


def places(events: int, cuts: int, choice: random.Random) -> list[int]:
    """Events after which it is cut: the first, the last ones, and others."""
    some = {1, 2, events - 2, events - 1}
    rest = [n for n in range(3, events - 2) if n not in some]
    return sorted({n for n in some if n > 0} | set(choice.sample(rest, min(cuts, len(rest)))))


async def cut_all(
    port: int, questions: Sequence[Question], cuts: int, twice: bool, tally: Tally
) -> None:
    """Each question at each place; every other one is cut again when it goes on."""
    choice = random.Random(7)
    whole = endpoint("z", url=f"http://127.0.0.1:{port}", key=KEY)
    for question in questions:
        if question.made is not None:
            usual = {**question.fields, "return_token_ids": True}
            ids = Merged(await ask(replace(question, fields=usual), whole)).ids
            question = replace(question, fields={**question.fields, **question.made(ids)})
        undisturbed = await ask(question, whole)
        expected, began = meaning(undisturbed), time.monotonic()
        events, wrong = undisturbed.count(b"data: "), len(tally.wrong)
        for place in places(events, cuts, choice):
            fault = await cut(question, port, place, expected, twice and place % 2 == 1)
            tally.cuts += fault != "not cut"
            tally.uncut += fault == "not cut"
            if fault not in ("", "not cut"):
                tally.wrong.append(f"{question.name} at {place} of {events}: {fault}")
        seconds = time.monotonic() - began
        print(
            f"{question.name}: {events} events, finish {expected['finish']}, "
            f"{len(tally.wrong) - wrong} wrong, {seconds:.0f} s",
            flush=True,
        )


async def cut(
    question: Question, port: int, place: int, expected: dict[str, Any], again: bool
) -> str:
    """What is wrong with the answer that was cut there; empty: nothing."""
    async with AsyncExitStack() as stack:
        proxies = [await stack.enter_async_context(CutProxy(port, place))]
        if again:
            proxies.append(await stack.enter_async_context(CutProxy(port, 7)))
        replicas = [
            endpoint(name, url=f"http://127.0.0.1:{proxy.port}", key=KEY)
            for name, proxy in zip("ab", proxies, strict=False)
        ]
        whole = endpoint("z", url=f"http://127.0.0.1:{port}", key=KEY)
        body = await ask(question, *replicas, whole)
        if not body.count(MARK):
            try:
                same = meaning(body) == expected
            except AssertionError:
                same = False
            return "not cut" if same else f"ended: {body[-400:]!r}"
        try:
            got = meaning(body)
        except AssertionError as bad:
            return f"{bad}: {body[-300:]!r}"
        differ = [name for name in expected if got[name] != expected[name]]
        return "; ".join(f"{n}: {got[n]!r} instead of {expected[n]!r}" for n in differ)


async def run(cuts: int, only: str = "", twice: bool = True) -> Tally:
    """Everything, one engine after the other."""
    tally = Tally()
    kinds = [(PARSER_ARGS, parsed_questions()), ({}, plain_questions())]
    with tempfile.TemporaryDirectory(prefix="ecuts") as folder:
        for args, questions in kinds:
            chosen = [q for q in questions if only in q.name]
            if not chosen:
                continue
            log = Path(folder) / "engine.log"
            async with real_engine(demo_model_dir(), log, args) as port:
                await cut_all(port, chosen, cuts, twice, tally)
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cuts", type=int, default=12)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    tally = asyncio.run(run(args.cuts, args.only))
    for wrong in tally.wrong[:40]:
        print(wrong)
    print(json.dumps({"cuts": tally.cuts, "not cut": tally.uncut, "wrong": len(tally.wrong)}))
    return 1 if tally.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
