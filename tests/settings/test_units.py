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


@pytest.mark.parametrize("value", [5, 5.0, True, None, "5", "5 parsecs", "s", "-1s", "٣s٣"])
def test_anything_else_is_no_duration(value: object) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration(value)


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
