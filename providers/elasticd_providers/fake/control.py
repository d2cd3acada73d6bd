"""`/control`: what only a test may do. Loopback only, no token; the vendor's API has none of it.

| call | does |
|---|---|
| `GET /control/truth` | everything: see `Truth` in `truth()` |
| `PUT /control/faults` | replaces all faults, and begins the script anew (`faults.Faults`) |
| `PUT /control/settings` | replaces the settings (`catalog.Settings`) |
| `POST /control/plant` | `{"name", "zone", "machine_type", "market", "tags"}`: somebody's machine |
| `POST /control/preempt` | `{"id", "notice": seconds or null}`: the market takes it |
| `POST /control/withdraw` | `{"id"}`: the market changes its mind |
| `POST /control/print` | `{"id", "line"}`: the machine prints a line |
| `POST /control/skip` | `{"seconds"}`: so much time passes at once |

Every answer of a change is `{"now"}`, with `{"machine"}` where it is about one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import web
from pydantic import ValidationError

from elasticd_providers.fake.catalog import Settings
from elasticd_providers.fake.desk import Desk
from elasticd_providers.fake.faults import Faults
from elasticd_providers.fake.machines import Machine
from elasticd_providers.fake.orders import Order, Refusal


class ControlRefused(Exception):
    """The test asked for something that cannot be."""


def truth(desk: Desk) -> dict[str, Any]:
    """What really is: `machines` ever made, with `state`, `costs` (money now) and `seconds_paid`;
    `calls` as `{"counts": {operation: n}, "recent": [{"at", "operation", "target", "effect",
    "status"}]}`; `now`, `faults`, `settings`.
    """
    now = desk.cloud.now
    return {
        "now": now,
        "machines": [_told(machine, now) for machine in desk.cloud.machines()],
        "calls": desk.log.to_json(),
        "faults": desk.cloud.faults.model_dump(mode="json"),
        "settings": desk.cloud.settings.model_dump(mode="json"),
    }


def _told(machine: Machine, now: float) -> dict[str, Any]:
    return machine.to_json() | {
        "state": machine.state(now),
        "costs": machine.costs(now),
        "seconds_paid": machine.seconds_paid(now),
    }


class Control:
    """The changes under `/control`; `save` is called after each."""

    def __init__(self, desk: Desk, save: Callable[[], None]) -> None:
        self._desk = desk
        self._save = save
        self._changes: Mapping[tuple[str, str], Callable[[dict[str, Any]], Machine | None]] = {
            ("PUT", "faults"): self._faults,
            ("PUT", "settings"): self._settings,
            ("POST", "plant"): self._plant,
            ("POST", "preempt"): self._preempt,
            ("POST", "withdraw"): self._withdraw,
            ("POST", "print"): self._print,
            ("POST", "skip"): self._skip,
        }

    def change(self, method: str, name: str, body: dict[str, Any]) -> dict[str, Any]:
        """One change. Raises `ControlRefused`, and then nothing has changed."""
        try:
            machine = self._changes[method, name](body)
        except (ValidationError, Refusal, KeyError, TypeError, ValueError) as bad:
            raise ControlRefused(f"{method} {name}: {type(bad).__name__}: {bad}") from bad
        self._desk.changed = True
        self._save()
        now = self._desk.cloud.now
        return {"now": now} | ({} if machine is None else {"machine": _told(machine, now)})

    def add_to(self, app: web.Application) -> None:
        app.router.add_get("/control/truth", self._answer_truth)
        for method, name in self._changes:
            app.router.add_route(method, f"/control/{name}", self._answer_change)

    async def _answer_truth(self, request: web.Request) -> web.Response:
        return web.json_response(truth(self._desk))

    async def _answer_change(self, request: web.Request) -> web.Response:
        name = request.path.removeprefix("/control/")
        try:
            return web.json_response(self.change(request.method, name, await request.json()))
        except (ControlRefused, json.JSONDecodeError) as refused:
            return web.json_response({"error": str(refused)}, status=400)

    def _faults(self, body: dict[str, Any]) -> None:
        self._desk.set_faults(Faults.model_validate(body))

    def _settings(self, body: dict[str, Any]) -> None:
        self._desk.cloud.settings = Settings.model_validate(body)

    def _plant(self, body: dict[str, Any]) -> Machine:
        return self._desk.cloud.plant(Order(**body))

    def _preempt(self, body: dict[str, Any]) -> Machine:
        return self._desk.cloud.reclaim(body["id"], body.get("notice"))

    def _withdraw(self, body: dict[str, Any]) -> Machine:
        return self._desk.cloud.withdraw(body["id"])

    def _print(self, body: dict[str, Any]) -> None:
        self._desk.cloud.print_line(body["id"], str(body["line"]))

    def _skip(self, body: dict[str, Any]) -> None:
        self._desk.cloud.skip(float(body["seconds"]))
