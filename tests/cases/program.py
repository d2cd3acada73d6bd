"""The controller as a process, over the fake cloud's process; the cluster is played in the test.

For what only a real process has: signals, a kill in the middle, a start after it.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp import web

from elasticd.provider import Instance, InstanceState
from tests.e2e.stack_config import free_ports
from tests.providers.fake_site import FakeSite, fake_site
from tests.runtime.world import Operator, World, agent_of

DEADLINE = 40.0
MODEL, POOL = "model", "spot"


class Program:
    """One configuration, one life of the controller after the other. Paths are short: a socket."""

    def __init__(self, folder: Path, site: FakeSite, agent_url: str, wanted: int) -> None:
        self.site = site
        self._folder = folder
        self._file = folder / "elasticd.yaml"
        self._process: asyncio.subprocess.Process | None = None
        self._wanted = wanted
        self._agent = agent_url.removeprefix("http://")
        self._admin = free_ports(1)[0]
        self.write()

    def write(self, **model: Any) -> None:
        """The configuration, with the model changed."""
        (self._folder / "model").mkdir(exist_ok=True)
        scaling = {"min_replicas": self._wanted, "max_replicas": 9}
        config = {
            "cluster": "testing",
            "state_dir": str(self._folder / "state"),
            "agent": {"listen": self._agent},
            "admin": {"listen": f"127.0.0.1:{self._admin}"},
            "node_pools": [
                {
                    "name": POOL,
                    "provider": "fake",
                    "url": self.site.url,
                    "visibility": "2s",
                    "idle_timeout": "1s",
                    "max_nodes": 9,
                }
            ],
            "models": [
                {
                    "name": MODEL,
                    "source": f"file:{self._folder / 'model'}",
                    "engine": {"command": ["serve", "{port}"]},
                    "scaling": scaling,
                    **model,
                }
            ],
        }
        self._file.write_text(yaml.safe_dump(config), encoding="utf-8")

    async def start(self) -> None:
        """Begins a life; it may refuse, or die at once."""
        with (self._folder / "log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "elasticd.cli", "controller", "-c", str(self._file)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    async def ended(self) -> int:
        """The exit code; fails where it does not end in time."""
        assert self._process is not None
        async with asyncio.timeout(DEADLINE):
            return await self._process.wait()

    async def close(self) -> None:
        """Nothing of it stays."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def status(self) -> dict[str, Any] | None:
        """`None` while it does not answer."""
        connector = aiohttp.UnixConnector(str(self._folder / "state" / "run" / "admin.sock"))
        async with aiohttp.ClientSession("http://admin", connector=connector) as session:
            try:
                return dict(await Operator(session).status())
            except (aiohttp.ClientError, OSError):
                return None

    async def ask(self, path: str, body: Any) -> None:
        connector = aiohttp.UnixConnector(str(self._folder / "state" / "run" / "admin.sock"))
        async with aiohttp.ClientSession("http://admin", connector=connector) as session:
            status, told = await Operator(session).ask("POST", path, json=body)
            assert status in (200, 202), told

    async def until(self, holds: Callable[[dict[str, Any]], Any], what: str) -> dict[str, Any]:
        """The first status for which it holds."""
        status: dict[str, Any] | None = None
        try:
            async with asyncio.timeout(DEADLINE):
                while (status := await self.status()) is None or not holds(status):
                    await asyncio.sleep(0.05)
        except TimeoutError:
            log = (self._folder / "log").read_text(encoding="utf-8")[-3000:]
            raise AssertionError(f"not in time: {what}\n{status}\n{log}") from None
        return status

    async def until_whole(self, count: int | None = None) -> dict[str, Any]:
        """So many replicas ready on so many machines, nothing under way and nothing left over."""
        wanted = self._wanted if count is None else count

        def whole(status: dict[str, Any]) -> bool:
            phases = [node["phase"] for node in status["nodes"] if node["phase"] != "gone"]
            orphans = [orphan for pool in status["pools"] for orphan in pool["orphans"]]
            [model] = status["models"]
            return phases == ["ready"] * wanted and model["ready"] == wanted and not orphans

        return await self.until(whole, f"{wanted} replicas and nothing else")


class PlayedCluster(World):
    """Every machine of the site joins at once; an engine is ready when it is ordered."""

    def __init__(self, site: FakeSite) -> None:
        super().__init__()
        self._site = site

    async def _state(self, request: web.Request) -> web.Response:
        paid = [m for m in await self._site.paid() if "elasticd-node" in m["tags"]]
        self.machines = {
            m["tags"]["elasticd-node"]: Instance(m["id"], None, None, InstanceState.RUNNING)
            for m in paid
        }
        self.engines = {r: o for r, o in self.engines.items() if o.node_id in self.machines}
        return await super()._state(request)


@asynccontextmanager
async def program(wanted: int = 2) -> AsyncIterator[Program]:
    """A site, a cluster and a configuration; the controller is not started."""
    folder = Path(tempfile.mkdtemp(prefix="ec-", dir="/tmp"))
    try:
        async with fake_site(folder) as site, agent_of(PlayedCluster(site)) as agent_url:
            made = Program(folder, site, agent_url, wanted)
            try:
                yield made
            finally:
                await made.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
