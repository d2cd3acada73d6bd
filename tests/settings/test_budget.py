"""The budget: each mistake at its place, one currency for all, and what the core is told."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from elasticd.core.specs import Budget
from elasticd.settings.fleet import to_fleet
from elasticd.settings.load import load
from elasticd.settings.reload import compare
from elasticd.settings.show import show
from tests.settings.conftest import PROVIDERS, Load, Refused

PAID = """\
cluster: test
state_dir: state
budget: {BUDGET}
node_pools:
  - {name: spot, provider: paid, max_nodes: 2, region: north, price: "2 USD"}
models:
  - {name: m, source: "file:weights"}
"""
FULL = (
    'max_per_hour: "40 USD", max_per_day: "600 USD", day_starts: "00:00 Asia/Shanghai", '
    'rates: {CNY: "0.14 USD"}'
)


def written(budget: str, price: str = "2 USD") -> str:
    return PAID.replace("BUDGET", budget).replace("2 USD", price)


def test_the_core_is_told_in_millionths_of_the_caps_currency(load_text: Load) -> None:
    told = to_fleet(load_text(written(FULL))).budget
    assert told == Budget("USD", 40_000_000, 600_000_000, (("CNY", 140_000),))


def test_without_a_budget_nothing_is_capped_and_the_pools_currency_is_counted_in(
    load_text: Load,
) -> None:
    text = written("", price="3 CNY").replace("budget: {}\n", "")
    assert to_fleet(load_text(text)).budget == Budget("CNY")


def test_a_cap_in_another_currency_is_counted_by_its_rate_and_never_rounded_up(
    load_text: Load,
) -> None:
    budget = 'max_per_hour: "40 USD", max_per_day: "0.333333 CNY", rates: {CNY: "0.14 USD"}'
    told = to_fleet(load_text(written(budget))).budget
    assert (told.currency, told.max_per_hour, told.max_per_day) == ("USD", 40_000_000, 46_666)


def test_what_is_shown_of_a_budget_reads_back_as_the_same(load_text: Load, tmp_path: Path) -> None:
    first = load_text(written(FULL))
    shown = show(first)
    assert yaml.safe_load(shown)["budget"] == {
        "max_per_hour": "40.00 USD",
        "max_per_day": "600.00 USD",
        "day_starts": "00:00 Asia/Shanghai",
        "rates": {"CNY": "0.14 USD"},
    }
    again = tmp_path / "shown.yaml"
    again.write_text(shown)
    assert load(again, PROVIDERS).settings.budget == first.settings.budget


def test_a_reload_applies_a_changed_budget_at_once(load_text: Load) -> None:
    old, new = load_text(written(FULL)), load_text(written(FULL.replace("40 USD", "50 USD")))
    change = compare(old, new, {"spot": 2})
    assert (change.changed, change.needs_restart, change.refused) == (
        ("budget.max_per_hour",),
        (),
        (),
    )


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        ("max_per_hour: 40", 'max_per_hour: an amount needs its currency: write "40 USD", not 40'),
        ('max_per_hour: "-4 USD"', "max_per_hour: not an amount of money: '-4 USD'"),
        ('max_per_hour: "0 USD"', "max_per_hour: must be more than nothing, or no machine"),
        ('max_per_day: "600 RMB"', "max_per_day: not a currency: 'RMB'; write CNY"),
        ('max_per_dya: "600 USD"', "max_per_dya: unknown key; did you mean max_per_day?"),
        ('day_starts: "24:00 UTC"', "day_starts: no such clock time: '24:00'"),
        ('day_starts: "7:00 UTC"', "day_starts: no such clock time: '7:00'"),
        ("day_starts: 00:00", "day_starts: a time needs its zone; write"),
        ('day_starts: "00:00 Asia/Shangai"', "'Asia/Shangai'; did you mean Asia/Shanghai?"),
        ('day_starts: "00:00 Beijing"', "'Beijing'; did you mean Asia/Shanghai?"),
        ('day_starts: "00:00 ../../etc/passwd"', "unknown time zone '../../etc/passwd'"),
        ('day_starts: "24:00 Asia/Shangai"', "'24:00'; allowed: 00:00 to 23:59, for example "),
        ('rates: {CNY: "0 USD"}', "rates.CNY: must be worth more than nothing"),
        ('rates: {cny: "0.14 USD"}', "rates.cny: not a currency: 'cny'; write CNY"),
        ('rates: {USD: "1 USD"}', "rates.USD: USD against itself; remove it"),
        (
            'max_per_hour: "4 USD", rates: {USD: "7.1 CNY"}',
            'write what one CNY is worth in USD, CNY: "0.140845 USD"',
        ),
        (
            'max_per_hour: "4 USD", rates: {CNY: "0.12 EUR"}',
            "rates.CNY: is in EUR, and the budget in USD; write what one CNY is worth in USD",
        ),
        (
            'max_per_hour: "4 USD", max_per_day: "90 CNY"',
            "max_per_day: is in CNY and the other cap in USD; write both in one currency, or add ",
        ),
        (
            'max_per_hour: "4 CNY"',
            "node_pools[0].price: is in USD, and the budget in CNY has no rate for it; add ",
        ),
    ],
)
def test_a_mistake_about_money_is_told_once_at_its_place(
    refused: Refused, budget: str, expected: str
) -> None:
    (problem,) = refused(written(budget))
    assert expected in problem


def test_all_mistakes_of_a_budget_are_told_in_one_run(refused: Refused) -> None:
    told = refused(
        written(
            'max_per_hour: "0 USD", max_per_day: 3, day_starts: "25:00 Mars", '
            'rates: {CNY: "0 USD", EUR: "1 EUR"}'
        )
    )
    assert [line.split()[1] for line in told] == [
        "budget.day_starts:",
        "budget.max_per_day:",
        "budget.max_per_hour:",
        "budget.rates.CNY:",
        "budget.rates.EUR:",
    ]
    assert "'25:00'" in told[0]
    assert "'Mars'" in told[0]


def test_a_host_without_time_zone_data_is_told_so_and_utc_works_all_the_same(
    load_text: Load, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    import zoneinfo

    zoneinfo.ZoneInfo.clear_cache()
    monkeypatch.setattr(zoneinfo, "TZPATH", ())
    monkeypatch.setattr("zoneinfo._tzpath.TZPATH", ())
    (problem,) = refused(written('day_starts: "00:00 Asia/Shanghai"'))
    assert "this host has no time zone data for Asia/Shanghai; install the system's" in problem
    load_text(written('max_per_day: "1 USD", day_starts: "00:00 UTC"'))


def test_a_price_of_nothing_needs_no_rate(load_text: Load) -> None:
    assert to_fleet(load_text(written('max_per_hour: "4 CNY"', price="0 USD"))).budget.rates == ()


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        (
            'max_per_hour: "10 USD", max_per_day: "241 USD"',
            "3 budget.max_per_day: is never reached: max_per_hour allows 240.00 USD a day",
        ),
        ("", "5 node_pools[0].provider: machines of paid cost money and nothing caps it; write"),
    ],
)
def test_a_budget_that_does_nothing_is_warned_of(
    load_text: Load, budget: str, expected: str
) -> None:
    (warning,) = load_text(written(budget)).warnings
    assert f"{warning.line} {warning.path}: {warning.message}".startswith(expected)


@pytest.mark.parametrize(
    "budget", ['max_per_hour: "10 USD", max_per_day: "240 USD"', 'max_per_day: "9 USD"']
)
def test_a_budget_that_caps_is_not_warned_of(load_text: Load, budget: str) -> None:
    assert load_text(written(budget)).warnings == ()


def _always_one(text: str) -> str:
    return text.replace('weights"}', 'weights", scaling: {min_replicas: 1}}')


def test_a_cap_that_no_machine_fits_under_is_warned_of_if_one_is_always_wanted(
    load_text: Load,
) -> None:
    (warning,) = load_text(_always_one(written('max_per_hour: "1 USD"'))).warnings
    assert f"{warning.line} {warning.path}: {warning.message}" == (
        "3 budget.max_per_hour: no machine may be rented for m: the cheapest costs 2.00 USD an "
        "hour, and min_replicas asks for 1; raise this"
    )


def test_a_cap_that_a_machine_of_unknown_price_may_fit_under_is_not_warned_of(
    load_text: Load,
) -> None:
    other = "node_pools:\n  - {name: other, provider: cloud, max_nodes: 1, region: north}\n"
    text = _always_one(written('max_per_hour: "1 USD"')).replace("node_pools:\n", other)
    assert load_text(text).warnings == ()
    assert load_text(_always_one(written('max_per_hour: "2 USD"'))).warnings == ()
