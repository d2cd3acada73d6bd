"""Promises of the event framer."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from elasticd.gateway.sse import EventFramer

STREAM = "data: 猫\n\n: ping\r\n\r\ndata: a\ndata: b\n\nevent: x\r\ndata: 🐈\r\n\r\nrest".encode()


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_however_a_stream_is_cut_its_bytes_are_the_same_and_events_are_whole(
    cuts: list[int],
) -> None:
    places = [0, *sorted(cuts), len(STREAM)]
    framer = EventFramer()
    out = b""
    for start, end in itertools.pairwise(places):
        out += framer.feed(STREAM[start:end])
        assert not out or out.endswith((b"\n\n", b"\r\n\r\n"))
    assert out == STREAM.removesuffix(b"rest")
    assert out + framer.flush() == STREAM


def test_what_is_no_event_stream_is_not_held_for_ever() -> None:
    framer = EventFramer()
    data = b"x" * (1024 * 1024 + 1)
    assert framer.feed(data) == data
    assert framer.flush() == b""
