"""Chunks of an answer, cut anywhere and written in any way: what the parser would make of them."""

from __future__ import annotations

from typing import Any, cast

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from elasticd.gateway.http.chunks import chunk, whole_chunk
from elasticd.gateway.http.client_protocol import ReplicaConnection
from elasticd.gateway.http.head import address_of

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


class Transport:
    """As much of one as is used."""

    def __init__(self) -> None:
        self.closing = False

    def write(self, data: bytes) -> None: ...
    def get_extra_info(self, name: str) -> None: ...
    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.closing

    def abort(self) -> None:
        self.closing = True

    close = abort


class Told:
    """Receiver and keeper."""

    def __init__(self) -> None:
        self.body = b""
        self.ends: list[str] = []
        self.kept = 0

    def head_came(self, status: int, headers: CIMultiDict[str]) -> None: ...
    def data_came(self, data: bytes) -> None:
        assert data
        self.body += data

    def ended(self) -> None:
        self.ends.append("ended")

    def lost(self, why: str) -> None:
        self.ends.append(why)

    def put(self, connection: ReplicaConnection) -> None:
        self.kept += 1

    def forget(self, connection: ReplicaConnection) -> None: ...


def read(*reads: bytes) -> Told:
    """What is told of these reads of the socket."""
    told, transport = Told(), Transport()
    connection = ReplicaConnection(address_of("http://127.0.0.1:1"), told)
    connection.connection_made(cast(Any, transport))
    connection.ask(b"GET / HTTP/1.1\r\n\r\n", told)
    for data in reads:
        if not transport.closing:
            connection.data_received(data)
    return told


def by_parser_alone(data: bytes) -> tuple[bytes, bool]:
    """The body, and whether it is whole."""

    class Seen:
        body = b""
        whole = False

        def on_body(self, piece: bytes) -> None:
            self.body += piece

        def on_message_complete(self) -> None:
            self.whole = True

    seen = Seen()
    httptools.HttpResponseParser(seen).feed_data(data)
    return seen.body, seen.whole


SIZES = st.one_of(
    st.integers(1, 40), st.sampled_from([15, 16, 17, 255, 256, 257, 4094, 4095, 4096, 4097])
)
FORMS = st.sampled_from([b"%x", b"%X", b"00%x", b"%x;a=b", b"%x"])


@st.composite
def answers(draw: st.DrawFn) -> list[bytes]:
    """A head, chunks in many forms, and an end; each a piece."""
    pieces = [HEAD]
    for number in range(draw(st.integers(0, 12))):
        body = b"%d\r\n0\r\n\r\n5\r\n" % number * 600
        body = body[: draw(SIZES)]
        pieces.append(draw(FORMS) % len(body) + b"\r\n" + body + b"\r\n")
    return [*pieces, draw(st.sampled_from([b"0\r\n\r\n", b"0\r\nX: y\r\n\r\n", b""]))]


@given(answers(), st.data())
def test_an_answer_is_the_same_however_it_comes(pieces: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(pieces)
    body, complete = by_parser_alone(whole)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    anywhere = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True) if a < b]
    for reads in ([p for p in pieces if p], [whole], anywhere):
        told = read(*reads)
        assert told.body == body
        assert told.ends == ["ended"] * complete
        assert told.kept == complete


@given(answers(), st.integers(0, 10**6), st.integers(0, 255))
def test_what_is_no_chunk_is_a_loss_wherever_it_comes(
    pieces: list[bytes], at: int, other: int
) -> None:
    """One byte is another: as the parser sees it, in whole pieces or in one."""
    index = at % len(pieces)
    if index == 0 or not pieces[index]:
        return
    piece = bytearray(pieces[index])
    piece[at % len(piece)] = other
    pieces = [*pieces[:index], bytes(piece), *pieces[index + 1 :]]
    one, many = read(b"".join(pieces)), read(*(p for p in pieces if p))
    assert many.body.startswith(one.body) or one.body.startswith(many.body)
    assert [e == "ended" for e in one.ends] == [e == "ended" for e in many.ends]


@pytest.mark.parametrize("size", [16, 17, 255, 256, 1000, 4095])
def test_one_whole_chunk_is_seen_as_one(size: int) -> None:
    body = b"x" * size
    assert whole_chunk(b"%x\r\n%b\r\n" % (size, body)) == body


@pytest.mark.parametrize("size", [1, 15, 16, 255, 256, 4095, 4096, 70_000])
def test_what_is_written_as_a_chunk_is_one(size: int) -> None:
    body = b"x" * size
    assert chunk(body) == b"%x\r\n%b\r\n" % (size, body)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"10\r\n" + b"x" * 16 + b"\n\n",
        b"10\r\n" + b"x" * 15 + b"\r\n",
        b"10\r\n" + b"x" * 16 + b"\r\n0\r\n\r\n",
        b"0A\r\n" + b"x" * 10 + b"\r\n",
        b"1F\r\n" + b"x" * 31 + b"\r\n",
        b"+10\r" + b"x" * 16 + b"\r\n",
        b"010\r\n" + b"x" * 16 + b"\r\n",
        b"1000\r\n" + b"x" * 4096 + b"\r\n",
    ],
)
def test_anything_else_is_left_to_the_parser(data: bytes) -> None:
    assert whole_chunk(data) == b""


def test_after_whole_chunks_the_parser_still_knows_where_it_is() -> None:
    one = b"12\r\n" + b"y" * 18 + b"\r\n"
    told = read(HEAD, *[one] * 5, one[:7], one[7:] + one, one, b"0\r\n\r\n")
    assert told.body == b"y" * 18 * 8
    assert (told.ends, told.kept) == (["ended"], 1)


def test_most_reads_of_a_stream_never_reach_the_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    fed: list[bytes] = []
    parser = httptools.HttpResponseParser

    class Counting:
        def __init__(self, owner: object) -> None:
            self._parser = parser(owner)

        def feed_data(self, data: bytes) -> None:
            fed.append(data)
            self._parser.feed_data(data)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._parser, name)

    monkeypatch.setattr(httptools, "HttpResponseParser", Counting)
    told = read(HEAD, *[chunk(b"z" * 18)] * 50, b"0\r\n\r\n")
    assert told.body == b"z" * 18 * 50
    assert len(fed) == 3, "the head, the first chunk, the end"
