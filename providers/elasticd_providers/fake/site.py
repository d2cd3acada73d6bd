"""The fake cloud as a process of its own, behind HTTP on a loopback port.

    python -m elasticd_providers.fake.site --state FILE [--port N] [--settings FILE]
                                           [--run-bootstrap]

Prints one JSON line, `{"ready": true, "port": N}`, once it answers. The customers' token is taken
from the environment (`ELASTICD_FAKE_TOKEN`, default `fake-token`). All state lies in FILE, with
the calls in FILE.calls, and is written before an answer goes out: killed in any way and started
again, it is the same cloud. SIGTERM and SIGINT end it at once; calls that hang are dropped.
`--settings` (see `catalog.Settings`) counts at the first start, from then on FILE does.

Under `/v1` is the vendor's API, see `routes` and `desk`; under `/control` the tests', see
`control`. With `--run-bootstrap` each machine's script runs in a process group of its own until
the machine ends; SIGTERM ends those too, SIGKILL leaves them to the next start on the same FILE.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from aiohttp import web

from elasticd_providers.fake.bootstraps import Bootstraps
from elasticd_providers.fake.calls import CallLog
from elasticd_providers.fake.catalog import Settings
from elasticd_providers.fake.cloud import Cloud
from elasticd_providers.fake.control import Control
from elasticd_providers.fake.desk import Desk
from elasticd_providers.fake.handling import HungUp, handle
from elasticd_providers.fake.routes import call_of
from elasticd_providers.fake.store import Store

TOKEN_VARIABLE = "ELASTICD_FAKE_TOKEN"  # noqa: S105
DEFAULT_TOKEN = "fake-token"  # noqa: S105
_LARGEST_BODY = 4 * 1024 * 1024
_DROP_AFTER = 0.1
"""Seconds that calls under way have when the site is told to end."""


class VendorApi:
    """Everything under `/v1`."""

    def __init__(self, desk: Desk, save: Callable[[], None]) -> None:
        self._desk = desk
        self._save = save

    async def answer(self, request: web.Request) -> web.StreamResponse:
        try:
            body = await request.json() if request.can_read_body else None
        except ValueError:
            return web.json_response({"error": {"code": "invalid_request"}}, status=400)
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        call = call_of(request.method, request.path, request.query, body, token)
        if call is None:
            raise web.HTTPNotFound
        try:
            answer = await handle(self._desk, call, self._save)
        except HungUp:
            if request.transport is not None:
                request.transport.abort()
            return web.Response()
        headers = {"Content-Type": answer.content_type, **answer.headers}
        return web.Response(body=answer.body, status=answer.status, headers=headers)


@asynccontextmanager
async def _serving(app: web.Application, port: int) -> AsyncIterator[int]:
    """The port on which it answers."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=_DROP_AFTER)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


async def serve(
    store: Store, token: str, port: int, settings: Settings | None, machines_dir: Path | None
) -> None:
    """Until SIGTERM or SIGINT. `machines_dir`: where bootstraps run, `None` for not at all."""
    desk = _restored(store, token, settings)
    bootstraps = None if machines_dir is None else Bootstraps(desk.cloud, machines_dir)

    def save() -> None:
        if desk.changed:
            store.save(desk.to_json())
            desk.changed = False
        store.append_calls(desk.log.news())

    app = web.Application(client_max_size=_LARGEST_BODY)
    app.router.add_route("*", "/v1/{rest:.*}", VendorApi(desk, save).answer)
    Control(desk, save).add_to(app)
    ending = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ending.set)
    save()
    async with _serving(app, port) as bound:
        running = None if bootstraps is None else asyncio.create_task(bootstraps.run())
        sys.stdout.write(json.dumps({"ready": True, "port": bound}) + "\n")
        sys.stdout.flush()
        await ending.wait()
        if running is not None and bootstraps is not None:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
            bootstraps.end_all()


def _restored(store: Store, token: str, settings: Settings | None) -> Desk:
    saved = store.read()
    if saved is None:
        return Desk(Cloud(time.time, settings), token)
    desk = Desk.from_json(time.time, token, saved)
    desk.log = CallLog.from_news(store.calls())
    return desk


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="elasticd_providers.fake.site", allow_abbrev=False)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--settings", type=Path)
    parser.add_argument("--run-bootstrap", action="store_true")
    told = parser.parse_args(arguments)
    settings = None
    if told.settings is not None:
        settings = Settings.model_validate_json(told.settings.read_bytes())
    machines_dir = told.state.with_suffix(".machines") if told.run_bootstrap else None
    token = os.environ.get(TOKEN_VARIABLE) or DEFAULT_TOKEN
    asyncio.run(serve(Store(told.state), token, told.port, settings, machines_dir))


if __name__ == "__main__":
    main()
