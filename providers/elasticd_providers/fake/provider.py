"""The provider contract over the fake vendor's wire."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Sequence
from urllib.parse import quote

from elasticd.provider import (
    AuthFailed,
    Instance,
    InstanceNotFound,
    LaunchRequest,
    NoticeKind,
    NoticeWithdrawn,
    Offering,
    PoolContext,
    PreemptionNotice,
    Unavailable,
)
from elasticd.secret import SecretUnavailable
from elasticd_providers.fake.attempts import Attempts
from elasticd_providers.fake.client import Client, HttpWire, Wire
from elasticd_providers.fake.entries import (
    MachineEntry,
    NoticeEntry,
    read_machines,
    read_notices,
    read_offers,
)
from elasticd_providers.fake.launching import Launcher
from elasticd_providers.fake.options import FakeOptions

_DEFAULT_TOKEN = "fake-token"  # noqa: S105  # that of a site that was given none
_MOST_PAGES = 1000
_LOG_TAIL = 4 * 1024
"""Characters of a boot log that are handed on."""


def create_fake(
    context: PoolContext,
    options: FakeOptions,
    *,
    wire: Wire | None = None,
    wall: Callable[[], float] = time.time,
) -> FakeProvider:
    """The provider of one pool. Raises `AuthFailed` where the token cannot be read.

    `wire` and `wall` (the wall clock, in seconds) are there for virtual time.
    """
    return FakeProvider(context, options, wire or _http_wire(options), wall)


def _http_wire(options: FakeOptions) -> HttpWire:
    token = _DEFAULT_TOKEN
    if options.token is not None:
        try:
            token = options.token.read().get_secret_value()
        except SecretUnavailable as unknown:
            raise AuthFailed(f"fake cloud {options.url}: token {unknown}") from unknown
    return HttpWire(options.url, token, options.timeout)


async def check_access(options: FakeOptions) -> str:
    """Who the cloud says that we are."""
    client = Client(_http_wire(options))
    try:
        _, document = await client.call("GET", "/v1/account")
    finally:
        await client.aclose()
    return f"the fake cloud at {options.url} knows us as {document.get('account', 'somebody')}"


class FakeProvider:
    """Implements `Provider`, `NoticeSource`, `Reclaimable` and `BootLog`."""

    def __init__(
        self, context: PoolContext, options: FakeOptions, wire: Wire, wall: Callable[[], float]
    ) -> None:
        self._context = context
        self._client = Client(wire)
        self._notices_every = options.notices_every
        steady = time.monotonic if wall is time.time else None
        attempts = Attempts(context.state_dir / "attempts", wall, steady)
        self._launcher = Launcher(
            context.pool, self._client, attempts, options.visibility, options.client_tokens
        )
        self._visibility, self._wall = options.visibility, wall
        self._fresh: dict[str, float] = {}
        """When each machine that may not be visible yet was launched."""
        self._closed = asyncio.Event()

    async def offerings(self) -> Sequence[Offering]:
        """The vendor's offers on the pool's market, of its GPU kinds."""
        _, document = await self._client.call("GET", "/v1/offers")
        market, kinds = self._context.market, self._context.accelerators
        return [
            entry.offering(self._context.pool, entry.available)
            for entry in read_offers(document, "the offers")
            if (market is None or entry.market == market.value)
            and (not kinds or entry.gpu_kind in kinds)
        ]

    async def launch(self, request: LaunchRequest) -> Instance:
        launched, now = await self._launcher.launch(request), self._wall()
        self._fresh = {i: at for i, at in self._fresh.items() if now - at < self._visibility}
        self._fresh[launched.instance_id] = now
        return launched

    async def terminate(self, instance_id: str) -> None:
        """A machine of just now that is not found is not visible yet, rather than gone."""
        try:
            await self._client.call("DELETE", _path(instance_id))
        except InstanceNotFound as unknown:
            age = self._wall() - self._fresh.get(instance_id, -math.inf)
            if age >= self._visibility:
                raise
            raise Unavailable(
                f"{unknown}; it was launched {age:.1f} s ago and may not be visible yet"
            ) from unknown

    async def instances(self) -> Sequence[Instance]:
        """All pages or an error. Ended machines are not shown.

        Of several machines of one node the oldest is the node's; the others are shown with the
        ledger and without a node: nobody asked for them, and they cost.
        """
        mine = [machine for machine in await self._pages() if not machine.ended]
        found: list[Instance] = []
        seen: set[tuple[str, str]] = set()
        for machine in sorted(mine, key=lambda machine: machine.age_order):
            identity = machine.identity
            if identity is None or identity.cluster != self._context.cluster:
                continue
            if identity.pool != self._context.pool:
                continue
            node = (identity.ledger_id, identity.node_id)
            node_id = None if node in seen else identity.node_id
            seen.add(node)
            found.append(machine.instance(self._context.pool, node_id, identity.ledger_id))
        return found

    async def notices(self) -> AsyncIterator[PreemptionNotice | NoticeWithdrawn]:
        """Every notice once per iterator, those given before it began included."""
        told: set[tuple[str, str]] = set()
        while not self._closed.is_set():
            _, document = await self._client.call("GET", "/v1/notices")
            entries = read_notices(document, "the notices")
            for entry in entries:
                if (entry.id, entry.status) not in told:
                    yield _notice(entry)
            told = {(entry.id, entry.status) for entry in entries}
            await self._pause()

    async def reclaim(self, instance_id: str, notice: float | None) -> None:
        await self._client.call("POST", f"{_path(instance_id)}/preempt", body={"notice": notice})

    async def boot_log(self, instance_id: str) -> str:
        """The end of it; empty where the vendor has forgotten the machine."""
        try:
            _, document = await self._client.call("GET", f"{_path(instance_id)}/log")
        except InstanceNotFound:
            return ""
        log = document.get("log")
        if not isinstance(log, str):
            raise Unavailable(f"the boot log of {instance_id} is no text")
        return log[-_LOG_TAIL:]

    async def aclose(self) -> None:
        """Ends the notices and lets go of connections; machines stay."""
        self._closed.set()
        await self._client.aclose()

    async def _pages(self) -> list[MachineEntry]:
        """Every page of the account's list. Raises `Unavailable` unless all of it came.

        A machine may come twice, when the list moves between two pages: it is one machine.
        """
        machines: dict[str, MachineEntry] = {}
        cursor: str | None = ""
        for _ in range(_MOST_PAGES):
            query = {"cursor": cursor} if cursor else {}
            _, document = await self._client.call("GET", "/v1/machines", query)
            machines |= {m.id: m for m in read_machines(document, "the list of machines")}
            total, following = document.get("total"), document.get("next")
            if following is None:
                return _complete(machines, total)
            if not isinstance(following, str) or not following or following == cursor:
                raise Unavailable(f"the list of machines does not go on after {cursor or 'start'}")
            cursor = following
        raise Unavailable(f"the list of machines has no end after {_MOST_PAGES} pages")

    async def _pause(self) -> None:
        """Until the next look at the notices, or until closed."""
        try:
            async with asyncio.timeout(self._notices_every):
                await self._closed.wait()
        except TimeoutError:
            return


def _complete(machines: dict[str, MachineEntry], total: object) -> list[MachineEntry]:
    """All of them, if there are at least as many as the vendor says that there are."""
    try:
        expected = int(str(total))
    except ValueError:
        raise Unavailable(f"the list of machines does not say how many: {total!r}") from None
    if len(machines) < expected:
        raise Unavailable(f"the list of machines has {len(machines)} of {expected}: pages are lost")
    return list(machines.values())


def _notice(entry: NoticeEntry) -> PreemptionNotice | NoticeWithdrawn:
    if entry.status == "withdrawn":
        return NoticeWithdrawn(entry.id, entry.machine_id)
    kind = NoticeKind.INTERRUPTION
    return PreemptionNotice(entry.id, entry.machine_id, kind, entry.seconds_left)


def _path(instance_id: str) -> str:
    return f"/v1/machines/{quote(instance_id, safe='')}"
