"""Replicas killed under many streams at once, with the stub engine: what a storm costs and loses.

    python tests/bench/storm_bench.py [--streams 300] [--kills 50] [--seed N]

Six replicas, all streams side by side for as long as there are kills, of which no stream meets more
than two; each answer must be exactly the one that the stub gives without us. Writes
`build/reports/storm_bench.json`; exits 1 where a stream was lost or differs, where too few went on,
or where the gateway's memory grew without bound.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import psutil

KIT = Path(__file__).resolve().parent
sys.path.insert(0, str(KIT.parents[1]))

from tests.bench.stub_engine import chat_context, expected  # noqa: E402
from tests.e2e.stack_config import free_ports  # noqa: E402

from elasticd.gateway.continuation.seam import MARK  # noqa: E402

REPORT = Path("build/reports/storm_bench.json")
REPLICAS = 6
TOKENS, STEP = 100, 15
"""Of each answer; milliseconds between two of them."""
AWAY = 0.4
"""Seconds that a killed replica is down."""
MOST_GROWTH = 40_000_000
"""Bytes that the gateway may take more at the end of the storm than when all streams first ran."""


@dataclass(frozen=True)
class Site:
    """Where everything listens."""

    control: int
    gateway: int
    replicas: Sequence[int]

    @classmethod
    def anywhere(cls) -> Site:
        """Ports that nobody has."""
        control, gateway, *replicas = free_ports(REPLICAS + 2)
        return cls(control, gateway, replicas)


@dataclass
class Tally:
    """What the clients saw."""

    answered: int = 0
    seams: Counter[int] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)


async def client(
    session: aiohttp.ClientSession, url: str, number: int, tally: Tally, over: asyncio.Event
) -> None:
    """One answer after the other until the storm is over."""
    asked = 0
    while not over.is_set():
        asked += 1
        messages = [{"role": "user", "content": f"client {number}, question {asked}"}]
        body = {"model": "stub", "stream": True, "messages": messages, "max_tokens": TOKENS}
        body["stream_options"] = {"include_usage": True}
        try:
            async with session.post(url, json=body) as response:
                told = await response.read()
        except (aiohttp.ClientError, OSError) as bad:
            tally.faults.append(f"{number}/{asked}: {bad!r}")
            continue
        fault = wrong(told, expected(chat_context(messages), TOKENS))
        if fault:
            tally.faults.append(f"{number}/{asked}: {fault}")
        tally.answered += 1
        tally.seams[told.count(MARK)] += 1


def wrong(told: bytes, text: str) -> str:
    """What is wrong with an answer; empty: nothing."""
    events = [e[6:] for e in told.split(b"\n\n") if e.startswith(b"data: ")]
    if events[-1:] != [b"[DONE]"]:
        return f"no end: {told[-200:]!r}"
    documents = [json.loads(e) for e in events[:-1]]
    if any("error" in d for d in documents):
        return f"an error: {documents[-1]}"
    content = "".join(c["delta"].get("content", "") for d in documents for c in d["choices"])
    usage = [d["usage"]["completion_tokens"] for d in documents if d.get("usage")]
    if content != text:
        return f"{content[:120]!r} … instead of {text[:120]!r} …"
    return "" if usage == [TOKENS] else f"usage {usage}"


async def kill(session: aiohttp.ClientSession, control: str, port: int) -> None:
    """As SIGKILL: the listener is gone, every connection is reset; then it is back."""
    await (await session.post(control, json={"port": port, "down": True})).read()
    await asyncio.sleep(AWAY)
    await (await session.post(control, json={"port": port, "down": False})).read()


async def answers(url: str) -> None:
    """Returns once something does."""
    async with aiohttp.ClientSession() as session:
        while True:
            try:
                await (await session.get(url)).read()
            except aiohttp.ClientError:
                await asyncio.sleep(0.05)
            else:
                return


def memory(pid: int) -> int:
    """Proportional set size, bytes."""
    return int(psutil.Process(pid).memory_full_info().pss)


async def storm(site: Site, streams: int, kills: int, seed: int, gateway: int) -> dict[str, Any]:
    """The figures. `gateway`: its process id."""
    url = f"http://127.0.0.1:{site.gateway}/v1/chat/completions"
    control = f"http://127.0.0.1:{site.control}/_stub"
    choice, tally, over = random.Random(seed), Tally(), asyncio.Event()
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        clients = [
            asyncio.create_task(client(session, url, n, tally, over)) for n in range(streams)
        ]
        await asyncio.sleep(TOKENS * STEP / 1000)
        before, began = memory(gateway), time.monotonic()
        for _ in range(kills):
            await kill(session, control, choice.choice(site.replicas))
            await asyncio.sleep(choice.uniform(0.6, 1.8))
        after, seconds = memory(gateway), time.monotonic() - began
        over.set()
        await asyncio.gather(*clients)
    return {
        "seed": seed,
        "streams": streams,
        "kills": kills,
        "seconds": round(seconds, 1),
        "answered": tally.answered,
        "continued": sum(n for seams, n in tally.seams.items() if seams),
        "seams": dict(sorted(tally.seams.items())),
        "faults": tally.faults,
        "pss_mb": [round(before / 1e6, 1), round(after / 1e6, 1)],
        "grown": after - before > MOST_GROWTH,
    }


async def measure(streams: int, kills: int, seed: int) -> dict[str, Any]:
    """Starts the stub and the gateway, and ends them."""
    site = Site.anywhere()
    ports, control = ",".join(map(str, site.replicas)), str(site.control)
    stub = [sys.executable, KIT / "stub_engine.py", "--ports", ports, "--control", control]
    urls = [f"http://127.0.0.1:{port}" for port in site.replicas]
    with tempfile.TemporaryDirectory(prefix="esb") as home:
        peer = [sys.executable, KIT / "peers/elasticd_gateway.py", str(site.gateway), home, *urls]
        processes = [subprocess.Popen([*stub, "--itl-ms", str(STEP)])]
        try:
            await answers(f"http://127.0.0.1:{control}/_stub")
            quiet = subprocess.DEVNULL  # it tells of every loss
            processes.append(subprocess.Popen(peer, stdout=quiet, stderr=quiet))
            await answers(f"http://127.0.0.1:{site.gateway}/health")
            await asyncio.sleep(2.0)  # it learns of its engines in the background
            return await storm(site, streams, kills, seed, processes[1].pid)
        finally:
            for process in processes:
                process.terminate()
                process.wait()


def shortcomings(told: dict[str, Any]) -> list[str]:
    """What the figures fall short of; empty: nothing."""
    found = {
        "streams lost or wrong": bool(told["faults"]),
        "too little hit": told["continued"] < 2 * told["kills"],
        "memory grew": told["grown"],
    }
    return [name for name, holds in found.items() if holds]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=300)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    told = asyncio.run(measure(args.streams, args.kills, args.seed))
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps(told, indent=2))
    for fault in told["faults"][:20]:
        print(fault)
    bad = shortcomings(told)
    verdict = f"FAILED: {', '.join(bad)}" if bad else "ok"
    print(
        f"storm of the stub: {verdict}: seed {args.seed}, {told['seconds']} s; "
        f"{args.streams} streams, {told['kills']} kills, {told['answered']} answered, "
        f"{told['continued']} continued, seams {told['seams']}, {len(told['faults'])} faults, "
        f"memory {told['pss_mb'][0]} → {told['pss_mb'][1]} MB"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
