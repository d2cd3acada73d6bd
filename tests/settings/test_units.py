"""Durations and addresses as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.settings.units import Address, format_duration, parse_address, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("5m", 300), ("2h", 7200), ("1h30m", 5400), ("250ms", 0.25), ("1.5h", 5400)],
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


@given(st.integers(min_value=1, max_value=10**8))
def test_a_written_duration_is_read_back(seconds: int) -> None:
    assert parse_duration(format_duration(seconds)) == seconds


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


@pytest.mark.parametrize("value", ["8000", ":8000", "::1:8000", "host:", "host:70000", "h:0", 8])
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
