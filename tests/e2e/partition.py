"""Links to replicas are really taken down under streams, and come back; prints what came of it.

    unshare --net --pid --fork --mount-proc python -m tests.e2e.partition

Engines (stubs) run in network namespaces behind links of their own; the gateway is the real
process, with a stand-in for its controller. First a replica is cut off in the middle of its
streams and comes back while they go on elsewhere. Then one is cut off, replaced in the table as
one that is lost, and comes back with its engine still running.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from elasticd.routing_table import Endpoint
from tests.bench.stub_engine import chat_context, expected
from tests.e2e.exact_answer import Answer
from tests.e2e.own_network import FarMachine, come_up
from tests.e2e.stack_config import ROOT
from tests.gateway.harness import FakeController
from tests.traffic.tables import endpoint, route, table

STALL_LIMIT = 2.0
"""Seconds of silence between tokens after which a stream is moved."""
STREAMS, TOKENS, STEP = 24, 300, 20
"""At once; of each; milliseconds between two tokens."""
AWAY = 4.0
"""Seconds that a link is down: longer than the streams need to go on."""
ENGINE, CONTROL, GATEWAY = 9101, 9100, 8000
URL = f"http://127.0.0.1:{GATEWAY}"


class Scene:
    """The machines, the gateway, and who asks."""

    def __init__(self, machines: dict[str, FarMachine], controller: FakeController) -> None:
        self.machines = machines
        self._controller = controller
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60.0))
        self._version = self._asked = 0

    async def aclose(self) -> None:
        await self._session.close()

    async def publish(self, *names: str) -> None:
        """From now on these replicas are routed to."""
        self._version += 1
        endpoints = [self._endpoint(name) for name in names]
        self._controller.publish(
            table(route(*endpoints, model="stub", continues=True), version=self._version)
        )
        await until(lambda: self._controller.followed == (1, self._version), "the table is taken")

    async def ask(self, answer: Answer, tokens: int = TOKENS, **more: Any) -> Answer:
        """One stream to its end."""
        self._asked += 1
        messages = [{"role": "user", "content": f"question {self._asked}"}]
        answer.text = expected(chat_context(messages), tokens)
        body = {"model": "stub", "stream": True, "messages": messages, "max_tokens": tokens}
        body |= more
        async with self._session.post(f"{URL}/v1/chat/completions", json=body) as response:
            answer.replica = response.headers.get("X-Elasticd-Replica", "")
            async for data in response.content.iter_any():
                answer.take(data)
        return answer

    async def knows_its_engines(self) -> bool:
        """Whether streams can go on elsewhere: then it asks for ids, by which the stub counts."""
        answer = Answer("")
        try:
            await self.ask(answer, 1, stream_options={"include_usage": True})
        except aiohttp.ClientError:
            return False
        [usage] = re.findall(rb'"prompt_tokens":(\d+)', answer.body) or [b"0"]
        return int(usage) > 20  # bytes are its ids; without them it says a quarter of that

    async def engine(self, name: str) -> dict[str, Any]:
        """What the stub knows of itself; its link must be up."""
        url = f"http://{self.machines[name].address}:{CONTROL}/_stub"
        async with self._session.get(url) as response:
            [state] = json.loads(await response.read())
        return dict(state)

    async def listens(self, name: str) -> bool:
        """Whether that engine is there."""
        try:
            return bool(await self.engine(name))
        except aiohttp.ClientError:
            return False

    def _endpoint(self, name: str) -> Endpoint:
        return endpoint(name, url=f"http://{self.machines[name].address}:{ENGINE}", slots=100)


Condition = Callable[[], bool | Awaitable[bool]]


async def until(condition: Condition, what: str, within: float = 20.0) -> None:
    """Polls; raises with `what` when it never holds."""
    began = time.monotonic()
    while True:
        holds = condition()
        if holds if isinstance(holds, bool) else await holds:
            return
        if time.monotonic() - began > within:
            raise TimeoutError(f"never: {what}")
        await asyncio.sleep(0.01)


async def streams_cut_off(scene: Scene, name: str) -> tuple[list[Answer], list[Any], float]:
    """Streams that run, of which those of the replica of that name get no more: when."""
    answers = [Answer("") for _ in range(STREAMS)]
    running = [asyncio.create_task(scene.ask(answer)) for answer in answers]
    await until(lambda: all(a.tokens >= 20 for a in answers), "all streams run")
    scene.machines[name].cut()
    return answers, running, time.monotonic()


def told(answers: list[Answer], name: str, cut_at: float) -> dict[str, Any]:
    """The figures of streams one of whose replicas was cut off."""
    left = [a for a in answers if a.replica == name]
    return {
        "faults": [a.fault for a in answers if a.fault],
        "left": len(left),
        "left_seams": sorted({a.seams for a in left}),
        "stayed_seams": sum(a.seams for a in answers if a.replica != name),
        "slowest_move": round(max(a.moved_at - cut_at for a in left), 3),
    }


async def comes_back(scene: Scene) -> dict[str, Any]:
    """A replica that is cut off and heard of again while its streams go on elsewhere."""
    await scene.publish("a", "b")
    answers, running, cut_at = await streams_cut_off(scene, "a")
    await asyncio.sleep(AWAY)
    going = sum(not task.done() for task in running)
    had = sum(a.before_seam for a in answers if a.seams)
    scene.machines["a"].heal()

    async def given_up() -> bool:
        state = await scene.engine("a")
        return bool(len(state["closed"]) >= sum(a.replica == "a" for a in answers))

    await until(given_up, "the replica learns that nobody wants its streams")
    sent = sum(c["sent"] for c in (await scene.engine("a"))["closed"])
    await asyncio.gather(*running)
    before = (await scene.engine("a"))["counts"]["done"]

    async def serves_again() -> bool:
        await asyncio.gather(*(scene.ask(Answer(""), 2) for _ in range(4)))
        return bool((await scene.engine("a"))["counts"]["done"] > before)

    await until(serves_again, "the replica serves again")
    return {**told(answers, "a", cut_at), "going_at_heal": going, "late_tokens": sent - had}


async def is_fenced(scene: Scene) -> dict[str, Any]:
    """A replica that is cut off, taken for lost and replaced, and comes back all the same."""
    answers, running, cut_at = await streams_cut_off(scene, "a")
    await scene.publish("b", "c")
    await asyncio.gather(*running)
    scene.machines["a"].heal()
    state = await scene.engine("a")
    first = state["counts"]["requests"]
    later = await asyncio.gather(*(scene.ask(Answer(""), 5) for _ in range(30)))

    async def nothing_is_open() -> bool:
        return not (await scene.engine("a"))["open"]

    await until(nothing_is_open, "the gateway holds no connection to what is fenced")
    figures = told(answers, "a", cut_at)
    figures["faults"] += [a.fault for a in later if a.fault]
    figures["asked_after_fence"] = (await scene.engine("a"))["counts"]["requests"] - first
    figures["served_by_replacement"] = sum(a.replica == "c" for a in later)
    return figures


@contextlib.asynccontextmanager
async def scene_in(folder: Path) -> AsyncIterator[Scene]:
    """Three machines with engines, and a gateway that serves."""
    config = yaml.safe_load((ROOT / "config" / "local.yaml").read_text(encoding="utf-8"))
    config |= {"cluster": "cut", "state_dir": str(folder / "state")}
    config["gateway"] = {"listen": f"127.0.0.1:{GATEWAY}", "idle_timeout": f"{STALL_LIMIT:g}s"}
    config["admin"]["socket"] = str(folder / "admin.sock")
    path = folder / "cut.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    controller = FakeController(folder / "admin.sock")
    await controller.start()
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(controller.stop)
        machines = {n: stack.enter_context(FarMachine(i)) for i, n in enumerate("abc", 1)}
        for machine in machines.values():
            ports = ("--ports", str(ENGINE), "--control", str(CONTROL), "--itl-ms", str(STEP))
            stub = str(ROOT / "tests" / "bench" / "stub_engine.py")
            machine.start(sys.executable, stub, "--host", machine.address, *ports)
        gateway = [sys.executable, "-m", "elasticd.cli", "gateway", "-c", str(path)]
        process = subprocess.Popen(gateway, stdout=sys.stderr)
        stack.callback(process.wait)
        stack.callback(process.terminate)
        scene = Scene(machines, controller)
        stack.push_async_callback(scene.aclose)
        for name in machines:
            await until(lambda name=name: scene.listens(name), "the engines listen")
        await scene.publish("a", "b")
        await until(scene.knows_its_engines, "streams can go on elsewhere")
        yield scene


def main() -> int:
    come_up()

    async def run() -> dict[str, Any]:
        with tempfile.TemporaryDirectory(prefix="ecut") as folder:
            async with scene_in(Path(folder)) as scene:
                return {"comes_back": await comes_back(scene), "is_fenced": await is_fenced(scene)}

    print(json.dumps(asyncio.run(run())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
