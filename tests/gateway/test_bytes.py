"""Promises about bytes: what the engine wrote is what the client reads, as soon as it is there."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest

from tests.gateway.harness import Connection, ScriptedEngine, stand
from tests.gateway.raw import connected, parsed

TEXT = "你好🙂 👩‍👩‍👧 é"
STREAM = {"model": "m", "messages": [], "stream": True}


def event(text: str) -> bytes:
    return f'data: {{"choices":[{{"index":0,"delta":{{"content":"{text}"}}}}]}}\n\n'.encode()


EVENTS = [event(character) for character in TEXT] + [event(TEXT), b"data: [DONE]\n\n"]


def chunked(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def byte_by_byte(c: Connection, data: bytes) -> None:
    """Each byte in a TCP segment of its own, as far as the kernel lets us."""
    for byte in data:
        await c.send(bytes((byte,)))
        await asyncio.sleep(0)


@pytest.mark.parametrize("framing", ["chunked", "until close", "length"])
async def test_a_stream_written_byte_by_byte_arrives_byte_for_byte(framing: str) -> None:
    """The framing of HTTP itself is cut at every byte too."""
    body = b"".join(EVENTS)
    heads = {
        "chunked": "Transfer-Encoding: chunked\r\n",
        "until close": "",
        "length": f"Content-Length: {len(body)}\r\n",
    }

    async def script(c: Connection) -> None:
        head = f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n{heads[framing]}\r\n"
        await byte_by_byte(c, head.encode())
        if framing == "chunked":
            for one in EVENTS:
                await byte_by_byte(c, chunked(one))
            await c.end()
        else:
            await byte_by_byte(c, body)

    async with stand() as s, ScriptedEngine(script) as engine:
        await s.publish(engine.endpoint())
        async with s.post(stream=True) as answer:
            got = await answer.read()
        assert got == body
        assert "\ufffd" not in got.decode()


@pytest.mark.parametrize("ending", ["\n\n", "\r\n\r\n"])
async def test_each_event_arrives_before_the_engine_goes_on(ending: str) -> None:
    """The engine waits for the client: an event that was held back would hold up both."""
    arrived = asyncio.Semaphore(0)
    events = [e.decode().replace("\n\n", ending).encode() for e in EVENTS]

    async def script(c: Connection) -> None:
        await c.head()
        for one in events:
            await byte_by_byte(c, chunked(one))
            await arrived.acquire()
        await c.end()

    async with stand() as s, ScriptedEngine(script) as engine:
        await s.publish(engine.endpoint())
        async with connected(s.gateway.port) as client:
            await client.post(STREAM, "Connection: close")
            seen = await client.until(b"\r\n\r\n")
            for one in events:
                seen += await client.until(chunked(one))
                arrived.release()
            seen += await client.reader.read()
        assert parsed(seen).body == b"".join(events)


async def test_a_data_line_cut_in_the_middle_is_passed_on_whole() -> None:
    second_half = asyncio.Event()
    whole = event(TEXT)

    async def script(c: Connection) -> None:
        await c.head()
        await c.chunk(EVENTS[0] + whole[:60])
        await second_half.wait()
        await c.chunk(whole[60:])
        await c.end()

    async with stand() as s, ScriptedEngine(script) as engine:
        await s.publish(engine.endpoint())
        async with s.post(stream=True) as answer, asyncio.timeout(10):
            assert await answer.content.readexactly(len(EVENTS[0])) == EVENTS[0]
            second_half.set()
            assert await answer.read() == whole


async def test_many_events_in_one_write_arrive_as_they_were() -> None:
    body = b"".join(EVENTS) * 200

    async def script(c: Connection) -> None:
        await c.head()
        await c.chunk(body)
        await c.end()

    async with stand() as s, ScriptedEngine(script) as engine:
        await s.publish(engine.endpoint())
        async with s.post(stream=True) as answer:
            assert await answer.read() == body


async def test_the_official_client_reads_the_text_of_a_stream_cut_at_every_byte() -> None:
    async def script(c: Connection) -> None:
        await c.head()
        for one in EVENTS:
            await byte_by_byte(c, chunked(one))
        await c.end()

    async with (
        stand() as s,
        ScriptedEngine(script) as engine,
        openai.AsyncOpenAI(base_url=s.url + "/v1", api_key="any", max_retries=0) as client,
    ):
        await s.publish(engine.endpoint())
        messages: Any = [{"role": "user", "content": TEXT}]
        stream = await client.chat.completions.create(model="m", messages=messages, stream=True)
        pieces = [chunk.choices[0].delta.content or "" async for chunk in stream]
    assert "".join(pieces) == TEXT + TEXT


async def test_a_streamed_answer_that_is_no_event_stream_is_not_held_back() -> None:
    """Who asks for a stream gets bytes as they come, whatever they are."""
    arrived = asyncio.Semaphore(0)
    pieces = [b"RIFF....", b"\x00\xff\xfe", b'{"line": 1}\n']

    async def script(c: Connection) -> None:
        await c.head("audio/wav")
        for piece in pieces:
            await c.chunk(piece)
            await arrived.acquire()
        await c.end()

    async with stand() as s, ScriptedEngine(script) as engine:
        await s.publish(engine.endpoint())
        async with s.post("/v1/audio/speech", stream=True) as answer, asyncio.timeout(10):
            for piece in pieces:
                assert await answer.content.readexactly(len(piece)) == piece
                arrived.release()
            assert await answer.read() == b""
