"""The fake cloud, in a process of its own, as the vendor; whose provider it is, a subclass says."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp

from elasticd_providers.fake.site import TOKEN_VARIABLE
from tests.conformance.subject import Machine, Subject, Trouble

TOKEN = "the-customers-token-that-nobody-may-see"
PAUSE = 3.0
_FOR_LONG = 3600.0
_LATE = (Trouble.LATE_DELIVERY, Trouble.LATE_AFTER_ERROR)


def _calls(operations: str, effect: str, times: int | None = None, **more: Any) -> dict[str, Any]:
    """Faults of calls: all of them until healed, or the first `times`."""
    return {
        "calls": [
            {"operation": operation, "effect": effect, "times": times, **more}
            for operation in operations.split()
        ]
    }


FAULTS: Mapping[Trouble, dict[str, Any]] = {
    Trouble.SOLD_OUT: {"out_of_stock": ["*"]},
    Trouble.FIRST_SOLD_OUT: {"out_of_stock": ["zone-a/g1.small/spot"]},
    Trouble.ANSWER_LOST: _calls("create terminate", "lost", times=1),
    Trouble.LIST_LAG: {"list_lag": _FOR_LONG},
    Trouble.NOT_FOUND_YET: {"unknown_lag": _FOR_LONG},
    Trouble.LATE_DELIVERY: _calls("create", "accepted", times=1, seconds=_FOR_LONG),
    Trouble.LATE_AFTER_ERROR: _calls("create", "late", times=1, seconds=_FOR_LONG),
    Trouble.DELIVERED_UNTOLD: _calls("create", "unlisted", times=1),
    Trouble.NOTHING_DELIVERED: _calls("create", "short"),
    Trouble.DELIVERED_TWICE: _calls("create", "twice", times=1),
    Trouble.HANGING: _calls("*", "hang"),
    Trouble.UNKNOWN_STATE: _calls("list find", "odd_state"),
    Trouble.ERROR_PAGE: _calls("*", "html"),
    Trouble.NOT_FOUND_PAGE: _calls("*", "bare_404"),
    Trouble.PLAIN_TEXT: _calls("*", "text"),
    Trouble.CUT_SHORT: _calls("*", "truncated"),
    Trouble.LIST_MISSING: _calls("offers create find list notices", "missing"),
    Trouble.ENTRY_BROKEN: _calls("create find list", "bad_entry"),
    Trouble.NUMBERS_AS_TEXT: _calls("offers create find list", "strings"),
    Trouble.NO_ADDRESS: _calls("create find list", "no_address"),
    Trouble.LISTED_TWICE: _calls("find list", "duplicates"),
    Trouble.THROTTLED: _calls("*", "throttled", retry_after=PAUSE),
    Trouble.BAD_CREDENTIALS: _calls("*", "unauthorized"),
    Trouble.FORBIDDEN: _calls("*", "forbidden"),
    Trouble.CANNOT_PAY: _calls("create", "no_balance"),
    Trouble.NO_QUOTA: _calls("create", "quota"),
    Trouble.TOO_EXPENSIVE: _calls("create", "price"),
    Trouble.INVALID: _calls("create", "invalid"),
    Trouble.IN_CONFLICT: _calls("create terminate", "conflict"),
    Trouble.BROKEN: _calls("*", "server_error"),
}
"""Everything but `UNREACHABLE`, for which the process is killed."""


class FakeCloudSubject(Subject):
    """Pages are short, so that lists have several."""

    secrets = (TOKEN,)
    pause = PAUSE

    def __init__(self) -> None:
        self._folder = Path()
        self._state = Path()
        self._port = 0
        self._something_to_come = False
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def open(self, folder: Path) -> None:
        self._state = folder / "cloud.json"
        (folder / "settings.json").write_text(json.dumps({"page_size": 2}), encoding="utf-8")
        self._start("--settings", str(folder / "settings.json"))

    def close(self) -> None:
        self._kill()

    def begin(self, folder: Path) -> None:
        self._folder = folder
        self.token_file.write_text(TOKEN, encoding="utf-8")

    @property
    def token_file(self) -> Path:
        """What a pool's option `token` names."""
        return self._folder / "token"

    def state_dir(self, cluster: str, ledger: str, pool: str) -> Path:
        """As elasticd would give it: another one for each installation and pool."""
        made = self._folder / cluster / ledger / pool
        made.mkdir(mode=0o700, parents=True, exist_ok=True)
        return made

    async def machines(self) -> list[Machine]:
        """A node is known by what a machine is called and tagged, in whatever way."""
        truth = await self._control("GET", "truth")
        return [
            Machine(machine["id"], self.node_of(machine["name"], machine["tags"]))
            for machine in truth["machines"]
            if machine["costs"]
        ]

    def node_of(self, name: str, tags: Mapping[str, str]) -> str:
        """The node id of a machine that the provider under test made."""
        raise NotImplementedError

    async def provoke(self, trouble: Trouble) -> None:
        if trouble is Trouble.UNREACHABLE:
            self._kill()
        else:
            await self._control("PUT", "faults", FAULTS[trouble])
        self._something_to_come = trouble in _LATE

    async def heal(self) -> None:
        if self._process is None:
            await asyncio.to_thread(self._start)
        await self._control("PUT", "faults", {})
        if self._something_to_come:
            await self._control("POST", "skip", {"seconds": _FOR_LONG})
            self._something_to_come = False

    async def bootstrap_of(self, instance_id: str) -> str:
        truth = await self._control("GET", "truth")
        (script,) = (m["bootstrap"] for m in truth["machines"] if m["id"] == instance_id)
        return str(script)

    async def give_notice(self, instance_id: str, seconds: float) -> None:
        await self._control("POST", "preempt", {"id": instance_id, "notice": seconds})

    async def withdraw_notice(self, instance_id: str) -> None:
        await self._control("POST", "withdraw", {"id": instance_id})

    async def _control(self, method: str, name: str, body: Any = None) -> dict[str, Any]:
        url = f"{self.url}/control/{name}"
        async with aiohttp.request(method, url, json=body) as answer:
            told: dict[str, Any] = await answer.json()
            assert answer.status == 200, told
            return told

    def _start(self, *arguments: str) -> None:
        """Starts the process, on the port of the time before, and waits until it answers."""
        command = [sys.executable, "-m", "elasticd_providers.fake.site"]
        command += ["--state", str(self._state), "--port", str(self._port), *arguments]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=os.environ | {TOKEN_VARIABLE: TOKEN}
        )
        assert self._process.stdout is not None
        self._port = int(json.loads(self._process.stdout.readline())["port"])

    def _kill(self) -> None:
        if self._process is not None:
            with self._process as process:
                process.kill()
            self._process = None
