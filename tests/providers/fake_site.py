"""The fake cloud for tests: a site in a process of its own, or the same desk without one.

    async with fake_site(tmp_path) as site:
        await site.faults(list_lag=20, calls=[{"operation": "create", "effect": "lost"}])
        provider = site.provider(tmp_path / "pool")
        ...
        assert await site.paid() == []
        await site.kill(); await site.start()  # SIGKILL, restart: same cloud, same port

`DirectSite` offers the same without a process, a socket or any waiting, by a clock of its own;
`DirectWire` alone is for virtual time: the adapter talks to a desk within the test's event loop.
"""

from __future__ import annotations

import abc
import asyncio
import json
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from elasticd.provider import LaunchRequest, Market, Offering, PoolContext, Unavailable
from elasticd_providers.fake import FakeOptions, FakeProvider, create_fake
from elasticd_providers.fake.catalog import Settings
from elasticd_providers.fake.client import Reply, Wire
from elasticd_providers.fake.cloud import Cloud
from elasticd_providers.fake.control import Control, truth
from elasticd_providers.fake.desk import Desk
from elasticd_providers.fake.handling import HungUp, handle
from elasticd_providers.fake.identity import Identity
from elasticd_providers.fake.routes import call_of
from elasticd_providers.fake.site import DEFAULT_TOKEN

CLUSTER = "testing"
LEDGER = "ledger1"
START_LIMIT = 30.0


class Site(abc.ABC):
    """What a test may ask of a cloud, wherever it runs."""

    async def faults(self, **faults: Any) -> None:
        """Replaces all faults; with none all is well."""
        await self._control("PUT", "faults", faults)

    async def fault(self, operation: str, effect: str, **more: Any) -> None:
        """Replaces all faults by one of a call."""
        await self.faults(calls=[{"operation": operation, "effect": effect, **more}])

    async def settings(self, **settings: Any) -> None:
        """Replaces the cloud's settings."""
        await self._control("PUT", "settings", settings)

    async def skip(self, seconds: float) -> None:
        """Lets so much time pass at once."""
        await self._control("POST", "skip", {"seconds": seconds})

    async def plant(
        self, name: str = "somebodys", tags: dict[str, str] | None = None, **order: str
    ) -> dict[str, Any]:
        """Somebody else's machine."""
        body = {"zone": "zone-a", "machine_type": "g1.small", "market": "spot"} | order
        told = await self._control("POST", "plant", body | {"name": name, "tags": tags or {}})
        return dict(told["machine"])

    async def preempt(self, machine_id: str, notice: float | None = None) -> None:
        """The market takes a machine: now, or `notice` seconds after a notice."""
        await self._control("POST", "preempt", {"id": machine_id, "notice": notice})

    async def withdraw(self, machine_id: str) -> None:
        """The market changes its mind."""
        await self._control("POST", "withdraw", {"id": machine_id})

    async def print_line(self, machine_id: str, line: str) -> None:
        """A machine prints a line."""
        await self._control("POST", "print", {"id": machine_id, "line": line})

    async def truth(self) -> dict[str, Any]:
        """Everything that is; see `elasticd_providers.fake.control`."""
        return await self._control("GET", "truth")

    async def plant_node(
        self,
        node_id: str = "node-of-another",
        *,
        ledger: str = "ledger-of-another",
        cluster: str = CLUSTER,
        pool: str = "pool",
        **order: str,
    ) -> dict[str, Any]:
        """A machine as an elasticd made it: by default with our cluster's name, another ledger."""
        identity = Identity(cluster, pool, ledger, node_id)
        return await self.plant(identity.name, identity.tags, **order)

    async def machines(self) -> list[dict[str, Any]]:
        """Every machine that ever was."""
        return list((await self.truth())["machines"])

    async def paid(self) -> list[dict[str, Any]]:
        """The machines that cost money now."""
        return [m for m in await self.machines() if m["costs"]]

    async def calls(self, operation: str) -> int:
        """How often the vendor's API was asked this, since ever."""
        return int((await self.truth())["calls"]["counts"].get(operation, 0))

    async def asked(self, operation: str) -> list[dict[str, Any]]:
        """The last calls of an operation, with time, target and what became of them."""
        recent = (await self.truth())["calls"]["recent"]
        return [call for call in recent if call["operation"] == operation]

    async def until(
        self, holds: Callable[[dict[str, Any]], Any], what: str, limit: float = 20.0
    ) -> dict[str, Any]:
        """The first truth for which `holds`; fails the test after `limit` seconds without one."""
        deadline = time.monotonic() + limit
        while not holds(truth := await self.truth()):
            assert time.monotonic() < deadline, f"not within {limit} s: {what}; truth: {truth}"
            await asyncio.sleep(0.02)
        return truth

    @abc.abstractmethod
    async def _control(self, method: str, name: str, body: Any = None) -> dict[str, Any]:
        """One call of the control."""


class FakeSite(Site):
    """One site process and its control. `url` is what a pool's option `url` wants."""

    def __init__(self, state: Path, arguments: tuple[str, ...] = ()) -> None:
        self._state = state
        self._arguments = arguments
        self._process: asyncio.subprocess.Process | None = None
        self._session: aiohttp.ClientSession | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """Starts the process, on the port of the time before, and waits until it answers."""
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "elasticd_providers.fake.site"),
            *("--state", str(self._state), "--port", str(self.port), *self._arguments),
            stdout=asyncio.subprocess.PIPE,
        )
        assert self._process.stdout is not None
        async with asyncio.timeout(START_LIMIT):
            line = await self._process.stdout.readline()
        self.port = json.loads(line)["port"]

    async def kill(self) -> None:
        """SIGKILL: what was not written is lost."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> int:
        """SIGTERM; the exit code."""
        return await self._end(signal.SIGTERM)

    async def close(self) -> None:
        """Ends the process, if it lives, and the control's connections."""
        if self._session is not None:
            await self._session.close()
        if self._process is not None and self._process.returncode is None:
            await self.stop()

    def provider(self, state_dir: Path, **more: Any) -> FakeProvider:
        """An adapter for this site; see `fake_provider`."""
        return fake_provider(self.url, state_dir, **more)

    async def _control(self, method: str, name: str, body: Any = None) -> dict[str, Any]:
        if self._session is None:
            self._session = aiohttp.ClientSession()
        url = f"{self.url}/control/{name}"
        async with self._session.request(method, url, json=body) as answer:
            told: dict[str, Any] = await answer.json()
            assert answer.status == 200, told
            return told

    async def _end(self, number: signal.Signals) -> int:
        assert self._process is not None
        self._process.send_signal(number)
        async with asyncio.timeout(START_LIMIT):
            code = await self._process.wait()
        if self._session is not None:
            await self._session.close()
            self._session = None
        return code


@asynccontextmanager
async def fake_site(directory: Path, *arguments: str, **settings: Any) -> AsyncIterator[FakeSite]:
    """A site that keeps its state in `directory`; `settings` as `catalog.Settings`."""
    told: tuple[str, ...] = ()
    if settings:
        file = directory / "settings.json"
        file.write_text(json.dumps(settings), encoding="utf-8")
        told = ("--settings", str(file))
    site = FakeSite(directory / "fake-cloud.json", (*told, *arguments))
    try:
        await site.start()
        yield site
    finally:
        await site.close()


class DirectWire:
    """The vendor's API without a process or a socket; time is the event loop's.

    `desk.cloud` is the truth, `desk.set_faults(Faults(…))` sets faults.
    """

    def __init__(self, desk: Desk, token: str = DEFAULT_TOKEN) -> None:
        self._desk = desk
        self._token = token

    async def send(
        self, method: str, path: str, query: Mapping[str, str], body: Mapping[str, Any] | None
    ) -> Reply:
        call = call_of(method, path, query, body, self._token)
        assert call is not None, f"the vendor has no {method} {path}"
        try:
            answer = await handle(self._desk, call, lambda: None)
        except HungUp as cut:
            raise Unavailable(f"{method} {path}: the connection was closed") from cut
        return Reply(answer.status, answer.body, answer.headers)

    async def aclose(self) -> None:
        return None


class DirectSite(Site):
    """A cloud in this process, by a clock of its own that stands still: `now`, or `skip`.

    No socket and no waiting. `cloud` is the truth; every provider shares the clock.
    """

    def __init__(self, state_dir: Path, **settings: Any) -> None:
        self._state_dir = state_dir
        self.now = 1000.0
        self.desk = Desk(Cloud(lambda: self.now, Settings(**settings)), DEFAULT_TOKEN)
        self.cloud = self.desk.cloud
        self._controls = Control(self.desk, lambda: None)

    def provider(self, **more: Any) -> FakeProvider:
        """An adapter; each one is a further life of the same pool. See `fake_provider`."""
        more = {"wire": DirectWire(self.desk)} | more
        return fake_provider(
            "http://127.0.0.1", self._state_dir, wall=lambda: self.cloud.now, **more
        )

    async def _control(self, method: str, name: str, body: Any = None) -> dict[str, Any]:
        if name == "truth":
            return truth(self.desk)
        return self._controls.change(method, name, body)


def fake_provider(
    url: str,
    state_dir: Path,
    *,
    pool: str = "pool",
    cluster: str = CLUSTER,
    ledger: str = LEDGER,
    market: Market | None = None,
    accelerators: tuple[str, ...] = (),
    wire: Wire | None = None,
    wall: Callable[[], float] = time.time,
    **options: Any,
) -> FakeProvider:
    """An adapter as a pool would have it. Without `visibility` nothing is waited for."""
    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    context = PoolContext(pool, cluster, ledger, state_dir, market, accelerators)
    checked = FakeOptions.model_validate({"url": url, "visibility": "0s"} | options)
    return create_fake(context, checked, wire=wire, wall=wall)


def offering(
    zone: str = "zone-a", machine_type: str = "g1.small", market: Market = Market.SPOT
) -> Offering:
    """As the usual settings offer it on pool `pool`."""
    micros, gpus = {"g1.small": (400_000, 1), "g2.large": (900_000, 2)}[machine_type]
    price = micros if market is Market.SPOT else 3 * micros
    return Offering("pool", zone, machine_type, "simulated", gpus, market, price)


def launch_request(
    node_id: str = "node-1",
    *offerings: Offering,
    ledger: str = LEDGER,
    cluster: str = CLUSTER,
    bootstrap: str = "exec sleep 987654\n",
) -> LaunchRequest:
    return LaunchRequest(node_id, cluster, ledger, offerings or (offering(),), bootstrap)


async def until_gone(terminate: Callable[[], Awaitable[None]], gone: type[Exception]) -> None:
    """Terminates until the provider says that nothing is left."""
    async with asyncio.timeout(20):
        while True:
            try:
                await terminate()
            except gone:
                return
            await asyncio.sleep(0.02)
