"""A table with one wrong value is refused as a whole, and the one before stays in force."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from elasticd.gateway import Gateway
from elasticd.gateway.table_store import load_table
from elasticd.routing_table import sent_at, table_from_json, table_to_json
from tests.gateway.harness import Stand, StubEngine, eventually, stand
from tests.traffic.tables import endpoint, route, table

TABLE = table(route(endpoint("a"), endpoint("b", cut_at=7.5), continues=True, spec_hash="hash"))
ENDPOINT = "models[0].endpoints[1]"
DEEP = b"[" * 100_000


def told(part: str = "", **fields: Any) -> dict[str, Any]:
    """The table with these fields in one of its parts."""
    whole: dict[str, Any] = json.loads(json.dumps(table_to_json(TABLE)))
    model = whole["models"][0]
    {"": whole, "models[0]": model, ENDPOINT: model["endpoints"][1]}[part].update(fields)
    return whole


WRONG: list[tuple[str, str, Any]] = [
    ("", "v", 2),
    ("", "epoch", "5"),
    ("", "version", -1),
    ("", "version", True),
    ("", "models", None),
    ("", "models", {}),
    ("", "models", [7]),
    ("models[0]", "model", 5),
    ("models[0]", "max_wait", "soon"),
    ("models[0]", "max_wait", -1),
    ("models[0]", "max_wait", math.nan),
    ("models[0]", "queue_limit", None),
    ("models[0]", "state", []),
    ("models[0]", "continues", 1),
    ("models[0]", "spec_hash", [1]),
    ("models[0]", "endpoints", None),
    ("models[0]", "endpoints", "ab"),
    (ENDPOINT, "replica_id", 5),
    (ENDPOINT, "replica_id", "a\r\nSet-Cookie: x"),
    (ENDPOINT, "incarnation", None),
    (ENDPOINT, "key", None),
    (ENDPOINT, "key", "secret\nX: y"),
    (ENDPOINT, "key", "\ud800"),
    (ENDPOINT, "slots", "5"),
    (ENDPOINT, "slots", -1),
    (ENDPOINT, "slots", 10**400),
    (ENDPOINT, "tier", "warm"),
    (ENDPOINT, "tier", []),
    (ENDPOINT, "node_id", {}),
    (ENDPOINT, "spec_hash", [1]),
    (ENDPOINT, "spec_hash", None),
    (ENDPOINT, "weight", 0),
    (ENDPOINT, "weight", math.inf),
    (ENDPOINT, "weight", 10**400),
    (ENDPOINT, "weight", "1"),
    (ENDPOINT, "cut_at", "soon"),
    (ENDPOINT, "cut_at", True),
    (ENDPOINT, "cut_at", math.inf),
    (ENDPOINT, "cut_at", -(10**400)),
    (ENDPOINT, "url", None),
    (ENDPOINT, "url", "junk"),
    (ENDPOINT, "url", "ftp://127.0.0.1:1"),
    (ENDPOINT, "url", "http://:80"),
    (ENDPOINT, "url", "http://127.0.0.1:port"),
    (ENDPOINT, "url", "http://[::1]:99999"),
    (ENDPOINT, "url", "http://[::1:80"),
    (ENDPOINT, "url", "http://127.0.0.1:1\n"),
    (ENDPOINT, "url", f"http://{'x' * 64}.example:1"),
]


@pytest.mark.parametrize(("part", "name", "value"), WRONG)
def test_what_is_wrong_in_a_table_is_named_with_its_place(part: str, name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=r".") as refused:
        table_from_json(told(part, **{name: value}))
    place = "version 2" if name == "v" else f"{part}.{name}" if part else name
    assert place in str(refused.value)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("whole", [None, 5, "x", [], {}, {"v": 1}])
def test_what_is_no_table_is_refused(whole: Any) -> None:
    with pytest.raises(ValueError, match=r"wanted|missing"):
        table_from_json(whole)


@pytest.mark.parametrize("field", ["slots", "key", "url"])
def test_a_field_that_is_missing_is_named(field: str) -> None:
    whole = told()
    del whole["models"][0]["endpoints"][0][field]
    with pytest.raises(ValueError, match=rf"models\[0\]\.endpoints\[0\]\.{field} is missing"):
        table_from_json(whole)


@pytest.mark.parametrize("part", ["", "models[0]", ENDPOINT])
def test_the_table_of_a_newer_controller_is_read(part: str) -> None:
    assert table_from_json(told(part, field_of_tomorrow={"x": 1})) == TABLE


def test_the_table_of_an_older_controller_is_read() -> None:
    whole = told(ENDPOINT, cut_at=None)
    for part in whole["models"][0], *whole["models"][0]["endpoints"]:
        for name in ("continues", "weight", "cut_at"):
            part.pop(name, None)
    (read,) = table_from_json(whole).models
    assert (read.continues, read.endpoints) == (False, (endpoint("a"), endpoint("b")))


@pytest.mark.parametrize("at", ["x", [], True, math.inf, math.nan, 10**400])
def test_a_time_that_is_none_is_refused(at: Any) -> None:
    with pytest.raises(ValueError, match="at: a number of seconds"):
        sent_at({"at": at})


def test_a_controller_may_keep_its_time_to_itself() -> None:
    assert sent_at({}) is sent_at({"at": None}) is None
    assert sent_at({"at": 7}) == 7


async def _serves(s: Stand) -> None:
    async with s.post(max_tokens=1) as answer:
        assert answer.status == 200
        assert answer.headers["X-Elasticd-Replica"] == "good"


@pytest.mark.slow
@pytest.mark.parametrize(
    "bad",
    [
        DEEP,
        b"",
        b"no json",
        b"null",
        b"\xff\xfe",
        json.dumps(told(version=9, at=[])).encode(),
        json.dumps(told(ENDPOINT, cut_at="soon")).encode(),
        json.dumps(told(ENDPOINT, spec_hash=[1])).encode(),
        json.dumps(told(ENDPOINT, url=None)).encode(),
    ],
    ids=lambda bad: repr(bad[:12]),
)
async def test_a_table_that_is_wrong_changes_nothing_and_the_next_one_counts(bad: bytes) -> None:
    async with stand() as s, StubEngine() as engine, StubEngine() as other:
        await s.publish(engine.endpoint("good"))
        s.controller.publish_bytes(bad)
        before = s.controller.asked
        await eventually(lambda: s.controller.asked >= before + 3, "it is asked again and again")
        await _serves(s)
        events = [e["event"] for e in s.logs]
        assert events.count("table refused, the one before stays") == 1
        assert "controller line down" not in events
        await s.publish(other.endpoint("new"))
        async with s.post(max_tokens=1) as answer:
            assert answer.headers["X-Elasticd-Replica"] == "new"


@pytest.mark.parametrize(
    "kept",
    [DEEP, b"null", *(json.dumps(told(part, **{n: v})).encode() for part, n, v in WRONG)],
    ids=lambda kept: "",
)
def test_a_table_on_disk_with_one_wrong_value_is_not_used(tmp_path: Path, kept: bytes) -> None:
    file = tmp_path / "table.json"
    file.write_bytes(kept)
    assert load_table(file) is None


async def test_a_gateway_starts_whatever_is_on_its_disk() -> None:
    async with stand() as s, StubEngine() as engine:
        await s.publish(engine.endpoint("good"))
        await s.controller.stop()
        wrong = json.loads(s.config.table_file.read_bytes())
        wrong["models"][0]["endpoints"][0]["cut_at"] = "soon"
        s.config.table_file.write_text(json.dumps(wrong))
        async with Gateway(s.config) as second:
            url = f"http://127.0.0.1:{second.port}/v1/completions"
            async with s.client.post(url, json={"model": "m", "prompt": "hi"}) as answer:
                assert answer.status == 503
        (ignored,) = [e for e in s.logs if e["event"] == "table file ignored"]
        assert "models[0].endpoints[0].cut_at" in ignored["error"]
