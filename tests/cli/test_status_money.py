"""What `elasticd status` says of money, of pools in trouble, and of machines of nobody."""

from __future__ import annotations

from typing import Any

import pytest

from elasticd.ops.status_change import essence
from elasticd.ops.status_money import money, spend_line
from elasticd.ops.status_problems import is_fine
from elasticd.ops.status_view import render
from elasticd.ops.status_why import explain
from elasticd.ops.text_table import Paint
from tests.cli.samples import sample_status

SPEND = {
    "currency": "USD",
    "per_hour": 3_200_000,
    "today": 14_100_000,
    "max_per_hour": 40_000_000,
    "max_per_day": 600_000_000,
    "day_ends_in": 10_800.0,
    "pools": {
        "here": {"currency": "USD", "per_hour": 3_200_000, "today": 14_100_000},
        "else": {"currency": "CNY", "per_hour": 0, "today": 7_000_000},
    },
    "models": {"tiny": {"currency": "USD", "per_hour": 800_000, "today": 3_100_000}},
    "unrated": [],
    "blocked": "",
}


def status_of(pool: dict[str, Any] | None = None, **top: Any) -> dict[str, Any]:
    status = sample_status(**top)
    status["pools"][0].update(pool or {})
    return status


def shown(status: dict[str, Any]) -> str:
    return "\n".join(render(status, 400, Paint(False)))


def why(status: dict[str, Any]) -> str:
    return "\n".join(explain(status, status["models"], 400, Paint(False)))


def test_the_rent_is_told_against_its_caps_and_when_the_day_ends() -> None:
    lines = shown(status_of(spend=SPEND)).splitlines()
    assert lines[0] == "local  healthy  2 machines"
    assert lines[1].strip() == (
        "rent 3.20 of 40.00 USD/h, today 14.10 of 600.00 USD (day ends in 3h)"
    )


def test_without_caps_none_are_told_and_what_cannot_be_said_is_a_question_mark() -> None:
    spend = {
        **SPEND,
        "max_per_hour": None,
        "max_per_day": None,
        "per_hour": None,
        "day_ends_in": None,
    }
    assert "rent ? USD/h, today 14.10 USD\n" in shown(status_of(spend=spend)) + "\n"


def test_money_that_runs_is_no_change_and_a_cap_that_blocks_is() -> None:
    later = {**SPEND, "today": 15_000_000, "day_ends_in": 9_000.0}
    assert essence(status_of(spend=SPEND)) == essence(status_of(spend=later))
    blocked = {**SPEND, "blocked": "budget: 600 of 600 USD spent today"}
    assert essence(status_of(spend=SPEND)) != essence(status_of(spend=blocked))


def test_what_the_budget_blocks_is_told_once_and_is_degraded() -> None:
    text = "budget: 40.00 USD/h are committed, with 2.00 USD/h more it would pass max_per_hour"
    status = status_of(spend={**SPEND, "blocked": text})
    assert f"! spend: {text}" in shown(status)
    assert not is_fine(status)
    status["models"][0]["blocked"] = f"no pool can rent: {text}"
    assert shown(status).count(text) == 1
    assert not is_fine(status)


def test_a_currency_without_a_rate_says_what_to_add() -> None:
    status = status_of(spend={**SPEND, "unrated": ["CNY"]})
    assert "prices in CNY cannot be counted, so nothing is rented; add CNY to budget.rates" in (
        shown(status)
    )
    assert not is_fine(status)
    uncapped = {**SPEND, "unrated": ["CNY"], "max_per_hour": None, "max_per_day": None}
    assert is_fine(status_of(spend=uncapped))


def test_why_tells_what_a_model_and_its_pools_cost() -> None:
    status = status_of(spend=SPEND)
    status["models"][0]["pools"] = ["here"]
    text = why(status)
    assert "0.80 USD/h, today 3.10 USD" in text
    assert "pool here: 3.20 USD/h, today 14.10 USD" in text
    assert "pool else" not in text
    assert "all machines: 3.20 of 40.00 USD/h" in text


@pytest.mark.parametrize(
    ("kind", "left", "told"),
    [
        ("quota", 300.0, "tried again in 5m; ask the provider for more"),
        ("auth", 60.0, "tried again in 1m; correct them; `elasticd doctor` tries them"),
        ("billing", 60.0, "the account cannot pay"),
        ("rejected", None, "until a reload; correct the pool, then `elasticd reload`"),
        ("outage", None, "until it answers"),
        ("boot", 3600.0, "machines do not become nodes"),
        ("versions", None, "bring the versions in step, then `elasticd reload`"),
        ("plague", None, "plague: said by the provider"),
    ],
)
def test_a_trouble_that_needs_people_is_told_with_what_to_do_and_is_degraded(
    kind: str, left: float | None, told: str
) -> None:
    trouble = {"kind": kind, "text": "said by the provider", "age": 90.0, "seconds_left": left}
    status = status_of({"troubles": [trouble], "last_error": "said by the provider"})
    (line,) = [text for text in shown(status).splitlines() if "said by the provider" in text]
    assert line.startswith(f"! pool here: {kind}: ")
    assert told in line
    assert "(for 1m30s)" in line
    assert not is_fine(status)
    assert f"here: {kind}: " in why(status)


@pytest.mark.parametrize("kind", ["stock", "price", "throttled"])
def test_a_trouble_of_the_market_is_told_and_is_nothing_wrong(kind: str) -> None:
    trouble = {"kind": kind, "text": "none left", "age": 90.0, "seconds_left": 15.0}
    status = status_of({"troubles": [trouble], "last_error": "none left"})
    (line,) = [text for text in shown(status).splitlines() if "none left" in text]
    assert line.startswith(f"- pool here: {kind}: ")
    assert is_fine(status)
    assert f"here: {kind}: " in why(status)


def test_an_error_that_no_trouble_tells_of_is_not_swallowed() -> None:
    trouble = {"kind": "stock", "text": "none left", "age": 90.0, "seconds_left": 15.0}
    status = status_of({"troubles": [trouble], "last_error": "instances: HTML"})
    assert "! pool here: instances: HTML" in shown(status)


def test_machines_that_should_not_be_there_are_told_with_their_cost_and_their_end() -> None:
    orphans = [
        {"instance_id": f"i-{n}", "price_micros": 600_000, "currency": "USD", "seconds_left": left}
        for n, left in ((1, 20.0), (2, 25.0))
    ]
    status = status_of({"orphans": orphans})
    assert (
        "! pool here: 2 machines of ours that should not be there (1.20 USD/h), ended in 25s: "
        "i-1, i-2" in shown(status)
    )
    assert "2 machines + 2 of no node" in shown(status).splitlines()[0]
    orphans[0]["seconds_left"] = None
    assert "(1.20 USD/h), will be ended: i-1, i-2" in shown(status)
    assert not is_fine(status)


def test_machines_of_another_ledger_are_told_with_whose_and_how_to_adopt_them() -> None:
    machines = [
        {"instance_id": f"i-{n}", "ledger_id": "left9", "price_micros": 500_000, "currency": "USD"}
        for n in (1, 2)
    ]
    status = status_of({"foreign": "left9", "foreign_machines": machines})
    (line,) = [text for text in shown(status).splitlines() if "another ledger" in text]
    assert "2 machines of this cluster name (1.00 USD/h) belong to another ledger (left9)" in line
    assert "`elasticd adopt` takes them over" in line
    assert not is_fine(status)
    old = status_of({"foreign": 1})
    assert "machines of this cluster name belong to another ledger; nothing is" in shown(old)


def test_machines_of_a_pool_that_left_the_configuration_are_told() -> None:
    nodes = [{"node_id": f"node-{n}", "pool": "old"} for n in range(7)]
    status = status_of(unmanaged=nodes)
    (line,) = [text for text in shown(status).splitlines() if "pool old" in text]
    assert "7 machines of it may still run and cost money" in line
    assert "node-4 and 2 more" in line
    assert not is_fine(status)


@pytest.mark.parametrize(
    ("micros", "shown"),
    [
        (0, "0.00"),
        (1_000, "0.001"),
        (15_000, "0.015"),
        (12_345, "0.012"),
        (1, "0.000001"),
        (400_000, "0.40"),
        (14_103_217, "14.10"),
        (-1_000, "-0.001"),
    ],
)
def test_what_costs_something_never_looks_free(micros: int, shown: str) -> None:
    assert money(micros) == shown


@pytest.mark.parametrize(("micros", "shown"), [(1_000, "0.001"), (40_000_000, "40.00")])
def test_a_cap_is_shown_as_it_was_given(micros: int, shown: str) -> None:
    spend = {"currency": "USD", "per_hour": 0, "max_per_hour": micros, "today": 0}
    assert spend_line(spend).startswith(f"0.00 of {shown} USD/h")
