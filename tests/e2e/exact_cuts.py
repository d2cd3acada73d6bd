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
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp

from elasticd.gateway.continuation.seam import MARK
from elasticd.routing_table import Endpoint
from elasticd.settings.paths import demo_model_dir
from tests.e2e.cut_proxy import CutProxy
from tests.e2e.cut_questions import Question, parsed_questions, plain_questions
from tests.e2e.memorised_model import PARSER_ARGS
from tests.e2e.real_engine import KEY, MODEL, real_engine
from tests.gateway.merged import Merged
from tests.gateway.test_continuation import continuing
from tests.traffic.tables import endpoint

_END_ALONE = "only the end was missing"


@dataclass
class Tally:
    """What came of it. `ends`: cuts after which only the end was missing."""

    cuts: int = 0
    ends: int = 0
    wrong: list[str] = field(default_factory=list)


async def ask_engine(question: Question, port: int) -> bytes:
    """The whole stream as its engine gives it, without a gateway."""
    fields = {**_always(question), "model": MODEL}
    url, key = f"http://127.0.0.1:{port}{question.path}", {"Authorization": f"Bearer {KEY}"}
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, json=fields, headers=key) as answer,
    ):
        return await answer.read()


def _always(question: Question) -> dict[str, Any]:
    return {"temperature": 0, "stream": True, "messages": None, **question.fields}


async def ask(question: Question, *replicas: Endpoint) -> bytes:
    """The whole stream, as the gateway gives it."""
    async with continuing(*replicas) as s, s.post(question.path, **_always(question)) as answer:
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
    """How many tokens are reasoning differs between two undisturbed answers: the engine counts
    differently where several came together."""
    details = usage.get("completion_tokens_details")
    return {**usage, "completion_tokens_details": details and set(details)}


def _bare(usages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{n: v for n, v in u.items() if n != "completion_tokens_details"} for u in usages]


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
        if meaning(await ask_engine(question, port)) != expected:
            tally.wrong.append(f"{question.name}: the engine itself says something else")
        for place in places(events, cuts, choice):
            fault = await cut(question, port, place, expected, twice and place % 2 == 1)
            tally.cuts += fault != _END_ALONE
            tally.ends += fault == _END_ALONE
            if fault not in ("", _END_ALONE):
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
        try:
            got = meaning(body)
        except AssertionError as bad:
            return f"{bad}: {body[-300:]!r}"
        if not body.count(MARK):  # there nobody was asked who could have counted
            got, expected = ({**m, "usage": _bare(m["usage"])} for m in (got, expected))
        differ = [name for name in expected if got[name] != expected[name]]
        wrong = "; ".join(f"{n}: {got[n]!r} instead of {expected[n]!r}" for n in differ)
        return wrong or ("" if body.count(MARK) else _END_ALONE)


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
    print(json.dumps({"cuts": tally.cuts, "ends": tally.ends, "wrong": len(tally.wrong)}))
    return 1 if tally.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
