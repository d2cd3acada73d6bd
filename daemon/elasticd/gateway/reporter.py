"""What the gateway tells the controller: demand, load of each replica, broken connections, and what
became of the requests of replicas that go.

Every half second while anything waits or runs and once after it, every two seconds else, and at
once when poked. A report that is lost loses nothing: arrivals and broken replicas are told again
with the next one.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import asdict, dataclass

import aiohttp
import structlog

from elasticd.gateway.feed import ControllerLink
from elasticd.gateway.outcomes import Outcomes
from elasticd.traffic.admission import Admission

_log = structlog.get_logger("elasticd.gateway")

_BUSY, _IDLE = 0.5, 2.0
_APART = 0.05
"""Seconds between two reports at least, however often it is poked."""


@dataclass(frozen=True, slots=True)
class BrokenReplica:
    """A connection to this replica broke."""

    replica_id: str
    incarnation: int
    message: str


class Reporter:
    """Posts reports for ever."""

    def __init__(self, link: ControllerLink, admission: Admission, outcomes: Outcomes) -> None:
        self._link = link
        self._admission = admission
        self._outcomes = outcomes
        self._broken: dict[tuple[str, int], BrokenReplica] = {}
        self._poked = asyncio.Event()
        self._life = secrets.token_hex(8)

    def poke(self) -> None:
        """Report at once."""
        self._poked.set()

    def broken(self, replica_id: str, incarnation: int, message: str) -> None:
        """Tells the controller at once; the latest message of a replica counts."""
        self._broken[replica_id, incarnation] = BrokenReplica(replica_id, incarnation, message)
        self.poke()

    async def run(self) -> None:
        """Never returns."""
        while True:
            self._poked.clear()
            was_idle = self._admission.idle
            await self._post()
            await asyncio.sleep(_APART)
            quiet = was_idle and self._admission.idle
            try:
                async with asyncio.timeout(_IDLE if quiet else _BUSY):
                    await self._poked.wait()
            except TimeoutError:
                continue

    async def _post(self) -> None:
        table = self._admission.table
        if table is None:
            return
        counts = self._admission.counts()
        broken = dict(self._broken)
        moved = self._outcomes.news(table.epoch)
        report = {
            "v": 1,
            "life": self._life,
            "epoch": table.epoch,
            "version": table.version,
            "models": [asdict(count) for count in counts],
            "loads": [
                {"replica_id": replica_id, "in_flight": in_flight}
                for replica_id, in_flight in sorted(self._admission.loads().items())
            ],
            "broken": [asdict(replica) for replica in broken.values()],
            "moved": [{"replica_id": r, **asdict(counts)} for r, counts in moved.items()],
            "totals": self._outcomes.totals(),
        }
        try:
            async with self._link.session.post("/internal/v1/report", json=report) as answer:
                answer.raise_for_status()
        except aiohttp.ClientResponseError as refused:
            _log.error("report refused by the controller", status=refused.status)
            return
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._link.note(str(error) or type(error).__name__)
            return
        self._admission.counts_taken(counts)
        self._outcomes.told(moved)
        for key, told in broken.items():
            if self._broken.get(key) is told:
                del self._broken[key]
