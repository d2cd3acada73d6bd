"""Durations, sizes, money and addresses as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.settings.units import Address, parse_address
from elasticd.units import (
    Money,
    format_duration,
    format_money,
    format_size,
    parse_duration,
    parse_money,
    parse_size,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("2m", 120),
        ("2h", 7200),
        ("1d", 86400),
        ("1h30m", 5400),
        ("250ms", 0.25),
        ("1.5h", 5400),
        ("0.1s", 0.1),
    ],
)
def test_a_duration_is_read_in_its_unit(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "value", [5, 5.0, True, None, "5", "5 parsecs", "s", "-1s", "٣s", "1 0s", " 5m", "1m 5s"]
)
def test_anything_else_is_no_duration(value: object) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration(value)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (2, "needs a unit: write 2s or 2m, not 2"),
        ("2", "needs a unit: write 2s or 2m, not 2"),
        ("2 min", "not a duration: '2 min'; write 2m; allowed: numbers with the units ms, s, m"),
        ("3 Seconds", "write 3s; allowed"),
        ("-5s", "not a duration: '-5s'; allowed"),
        ("inf", "not a duration: 'inf'"),
        ("nan", "not a duration: 'nan'"),
        (float("inf"), "a duration needs a unit"),
        ("", "not a duration: ''"),
        (None, "has no value, where a duration belongs"),
    ],
)
def test_what_is_no_duration_is_told_what_to_write(value: object, told: str) -> None:
    with pytest.raises(ValueError, match="duration") as caught:
        parse_duration(value)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    "value", ["0.0000001ms", "3651d", "9" * 400 + "s", "0." + "0" * 400 + "1s"]
)
def test_a_duration_is_never_rounded_to_nothing_or_for_ever(value: str) -> None:
    with pytest.raises(ValueError, match="allowed: 0s, or 1ms to 3650d"):
        parse_duration(value)


@pytest.mark.parametrize(("text", "seconds"), [("0s", 0), ("1ms", 0.001), ("3650d", 315_360_000)])
def test_the_bounds_of_a_duration_are_fine(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("one", "other", "collide"),
    [
        ("127.0.0.1:1", "localhost:1", True),
        ("LOCALHOST:1", "[::1]:1", True),
        ("[0:0::1]:1", "[::1]:1", True),
        ("0.0.0.0:1", "127.0.0.1:1", True),
        ("127.0.0.1:1", "127.0.0.2:1", False),
        ("127.0.0.1:1", "127.0.0.1:2", False),
    ],
)
def test_addresses_collide_when_they_mean_the_same(one: str, other: str, collide: bool) -> None:
    assert parse_address(one).collides(parse_address(other)) is collide
    assert parse_address(other).collides(parse_address(one)) is collide


@given(st.integers(min_value=1_000, max_value=3650 * 86_400_000_000))
def test_a_written_duration_is_read_back(microseconds: int) -> None:
    seconds = microseconds / 1_000_000
    assert parse_duration(format_duration(seconds)) == seconds


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (90, "1m30s"), (1.5, "1s500ms"), (0.0015, "1.5ms")]
)
def test_a_duration_is_written_in_few_words(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("text", "size"),
    [("16GiB", 16 * 2**30), ("10GB", 10**10), ("1.5MiB", 3 * 2**19), ("7B", 7), ("2kB", 2000)],
)
def test_a_size_is_read_in_its_unit(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (10, "a size needs a unit: write 10GiB or 10GB, not 10"),
        ("10", "a size needs a unit"),
        ("10G", "not a size: '10G'; allowed"),
        ("10 GB", "not a size"),
        ("-1GB", "not a size"),
        ("inf", "not a size"),
        ("", "not a size"),
        (None, "has no value, where a size belongs"),
        ("0.3B", "not a useful size"),
        ("9999999PiB", "not a useful size"),
    ],
)
def test_anything_else_is_no_size(value: object, told: str) -> None:
    with pytest.raises(ValueError, match="size") as caught:
        parse_size(value)
    assert told in str(caught.value)


@given(st.integers(min_value=0, max_value=2**60))
def test_a_written_size_is_read_back(size: int) -> None:
    assert parse_size(format_size(size)) == size


@pytest.mark.parametrize(
    ("size", "text"), [(16 * 2**30, "16GiB"), (10**10, "10GB"), (0, "0B"), (1000, "1kB")]
)
def test_a_size_is_written_in_the_unit_that_it_fills(size: int, text: str) -> None:
    assert format_size(size) == text


@pytest.mark.parametrize(
    ("text", "money"),
    [("2.50 USD", Money(2_500_000, "USD")), ("0.000001 CNY", Money(1, "CNY"))],
)
def test_money_is_exact(text: str, money: Money) -> None:
    assert parse_money(text) == money
    assert format_money(money) == text


@pytest.mark.parametrize("value", [2.5, "2.50", "2.50 usd", "$2.50", "-1 USD", "1e3 USD", "", None])
def test_anything_else_is_no_money(value: object) -> None:
    with pytest.raises(ValueError, match="amount"):
        parse_money(value)


@given(st.integers(min_value=0, max_value=10**15))
def test_written_money_is_read_back(micros: int) -> None:
    assert parse_money(format_money(Money(micros, "USD"))) == Money(micros, "USD")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8000", Address("127.0.0.1", 8000)),
        ("gpu1.lab:1", Address("gpu1.lab", 1)),
        ("[::1]:65535", Address("::1", 65535)),
    ],
)
def test_an_address_is_read_and_written_back(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    "value",
    [
        "8000",
        ":8000",
        "::1:8000",
        "host:",
        "host:70000",
        "h:0",
        "h:080",
        "h:8_080",
        "22:22:22",
        "http://h:80",
        8,
        None,
    ],
)
def test_anything_else_is_no_address(value: object) -> None:
    with pytest.raises(ValueError, match=r"address|port"):
        parse_address(value)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("gateway.lab", False),
    ],
)
def test_loopback_is_known(host: str, loopback: bool) -> None:
    assert Address(host, 1).is_loopback is loopback
