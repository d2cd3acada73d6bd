"""The journal over the admin API: pages of a log, and a wait for what comes next."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from aiohttp import web

from elasticd.ops.admin_http import Refused, json_answer, number
from elasticd.ops.admin_ports import AdminPorts
from elasticd.ops.journal_recovery import Troubles
from elasticd.ops.journal_story import tell

_LARGEST_PAGE = 500
"""Entries that are read at once: they are decoded beside the control loop."""

_LOOK = 0.5
"""Seconds between two looks into the journal while a reader waits."""


_READERS = 64
"""Ends of pages that are remembered for those who read on from them."""


class Events:
    """Answers `GET /api/v1/events?since_seq=N&since=SECONDS&limit=N&wait=S`."""

    def __init__(self, ports: AdminPorts, longest_wait: float) -> None:
        self._ports = ports
        self._longest_wait = longest_wait
        self._closing = asyncio.Event()
        self._troubles: dict[int, Troubles] = {}

    def add_to(self, app: web.Application) -> None:
        """The route. Who waits when the daemon stops is told so at once, and holds up nothing."""
        app.router.add_get("/api/v1/events", self.read)
        app.on_shutdown.append(self._close)

    async def _close(self, _app: web.Application) -> None:
        self._closing.set()

    async def read(self, request: web.Request) -> web.Response:
        """Entries with something to tell, oldest first. `next_seq` is the `since_seq` of the next
        page; `more`: it is there already."""
        seq = number(request, "since_seq", int, least=0)
        since = number(request, "since", float)
        limit = min(number(request, "limit", int, _LARGEST_PAGE, least=1), _LARGEST_PAGE)
        wait = min(number(request, "wait", float, least=0), self._longest_wait)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait
        while True:
            entries, seq, more = await self._page(seq, since, limit)
            if self._closing.is_set():
                raise Refused(503, "the daemon is stopping")
            if entries or more or loop.time() >= deadline:
                return json_answer({"entries": entries, "next_seq": seq, "more": more})
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK):
                    await self._closing.wait()

    async def _page(
        self, seq: int, since: float, limit: int
    ) -> tuple[list[dict[str, Any]], int, bool]:
        found = await self._ports.journal(seq, since, limit)
        # A reader goes on where a page ended: what was out of reach there is out of reach here.
        troubles = self._troubles.get(seq, Troubles()).copy()
        told = [story for entry in found if (story := tell(entry, troubles)) is not None]
        last = found[-1].seq if found else seq
        self._remember(last, troubles)
        return told, last, len(found) == limit

    def _remember(self, seq: int, troubles: Troubles) -> None:
        if (known := self._troubles.pop(seq, None)) is not None:
            troubles.learn(known)  # from a reader who began earlier
        self._troubles[seq] = troubles
        if len(self._troubles) > _READERS:
            del self._troubles[next(iter(self._troubles))]
