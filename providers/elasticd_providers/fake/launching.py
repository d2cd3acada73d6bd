"""One machine for one node, however often it is asked for and whatever becomes of the answers.

Before anything is created the machine is looked for by its exact name. A creation is one call; if
its answer is unclear, the machine is looked for once more, and if it is not found nothing is
created again until the cloud has had the time to show it (`Attempts`). Of two machines with one
name, which a cloud makes when it carries a creation out twice, the oldest is kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from weakref import WeakValueDictionary

from elasticd.provider import (
    AuthFailed,
    BillingBlocked,
    Instance,
    InstanceNotFound,
    LaunchRequest,
    NoCapacity,
    Offering,
    PriceTooHigh,
    ProviderError,
    QuotaExceeded,
    RateLimited,
    Rejected,
    Unavailable,
)
from elasticd_providers.fake.attempts import Attempt, Attempts, Outcome
from elasticd_providers.fake.client import Client, TokenConflict, error_of, shown
from elasticd_providers.fake.entries import MachineEntry, read_machines
from elasticd_providers.fake.identity import Identity

_ACCEPTED = 202

NEXT_ONE = (NoCapacity, PriceTooHigh, QuotaExceeded)
"""Refusals of one offering, the one that passes soonest first."""
NOTHING_MADE = (AuthFailed, BillingBlocked, RateLimited, Rejected)
"""Refusals of the whole request. After any other error a machine may have been made."""


class Launcher:
    """Creates machines for a pool. `visibility` in seconds, see `FakeOptions`."""

    def __init__(
        self, pool: str, client: Client, attempts: Attempts, visibility: float, tokens: bool
    ) -> None:
        self._pool = pool
        self._client = client
        self._attempts = attempts
        self._visibility = visibility
        self._tokens = tokens
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def launch(self, request: LaunchRequest) -> Instance:
        """As `Provider.launch`. Two at once for one node come one after the other."""
        lock = self._locks.setdefault(request.node_id, asyncio.Lock())
        async with lock:
            return await self._launch(request)

    async def _launch(self, request: LaunchRequest) -> Instance:
        identity = Identity(request.cluster, self._pool, request.ledger_id, request.node_id)
        ours = [offering for offering in request.offerings if offering.pool == self._pool]
        if not ours:
            raise Rejected(f"pool {self._pool}: no offering of it among those asked for")
        before = await self._attempts.last(request.node_id)
        machine = await (self._find(identity) if before is None else self._find_again(identity))
        if machine is None:
            if before is not None:
                await self._may_ask_again(*before)
            machine = await self._create_any(request, identity, ours)
        await self._attempts.given(request.node_id, machine.id)
        return machine.instance(self._pool, request.node_id, request.ledger_id)

    async def _find(self, identity: Identity) -> MachineEntry | None:
        """The machine of this name: a living one rather than one that has ended."""
        name = identity.name
        _, document = await self._client.call("GET", "/v1/machines", {"name": name})
        found = read_machines(document, f"the machines named {name}")
        return await self._oldest([machine for machine in found if machine.name == name])

    async def _find_again(self, identity: Identity) -> MachineEntry | None:
        """The same once a creation is under way: whatever hinders the search, its outcome is open,
        so none of the errors that end a node may come of it.
        """
        try:
            return await self._find(identity)
        except (Unavailable, RateLimited):
            raise
        except ProviderError as hindered:
            told = f"{hindered}; whether {identity.node_id} has a machine is not known"
            raise Unavailable(told) from hindered

    async def _oldest(self, machines: Sequence[MachineEntry]) -> MachineEntry | None:
        """Keeps one of them and ends the others."""
        in_order = sorted(machines, key=lambda machine: (machine.ended, *machine.age_order))
        for surplus in in_order[1:]:
            if not surplus.ended and surplus.id != in_order[0].id:
                # If it does not work, lists go on to show it as a machine without a node.
                with suppress(ProviderError):
                    await self._client.call("DELETE", f"/v1/machines/{surplus.id}")
        return in_order[0] if in_order else None

    async def _may_ask_again(self, attempt: Attempt, age: float) -> None:
        """Raises while a machine that was asked for before may still appear, and for one that
        was given: a node never has a second one.
        """
        node_id = attempt.node_id
        if age < self._visibility and (not self._tokens or attempt.outcome is Outcome.NONE_GIVEN):
            told = attempt.instance_id or "not clearly answered"
            raise Unavailable(
                f"pool {self._pool}: {node_id} was asked for {age:.1f} s ago ({told}); its "
                f"machine may still appear, within {self._visibility:g} s"
            )
        if attempt.outcome is Outcome.GIVEN:
            raise InstanceNotFound(
                f"pool {self._pool}: {node_id}: its machine {attempt.instance_id} is no more"
            )
        if attempt.outcome is Outcome.NONE_GIVEN:
            await self._attempts.close(node_id)
            raise NoCapacity(f"pool {self._pool}: the cloud gave no machine, and none appeared")

    async def _create_any(
        self, request: LaunchRequest, identity: Identity, offerings: Sequence[Offering]
    ) -> MachineEntry:
        """The first offering that is to be had. Only a clear no leads to the next one."""
        refused: list[ProviderError] = []
        for offering in offerings:
            await self._attempts.asking(identity.node_id)
            try:
                return await self._create(request, identity, offering)
            except NEXT_ONE as refusal:
                refused.append(refusal)
            except NOTHING_MADE:
                await self._attempts.close(identity.node_id)
                raise
        await self._attempts.close(identity.node_id)
        # Of several reasons the one that passes soonest: what is set aside for it is all of them.
        kind = next(kind for kind in NEXT_ONE if any(isinstance(r, kind) for r in refused))
        raise kind("; ".join(map(str, refused)))

    async def _create(
        self, request: LaunchRequest, identity: Identity, offering: Offering
    ) -> MachineEntry:
        try:
            status, document = await self._client.call(
                "POST", "/v1/machines", body=self._order(request, identity, offering)
            )
            machines = read_machines(document, "the answer to a creation")
        except (Unavailable, TokenConflict) as unclear:
            await self._attempts.unclear(identity.node_id)
            return await self._found_or(
                identity, Unavailable(f"{unclear}; whether a machine was made is not known")
            )
        mine = await self._oldest([m for m in machines if m.name == identity.name])
        if mine is not None:
            return mine
        return await self._answered_with_none(identity, offering, status, document)

    async def _answered_with_none(
        self, identity: Identity, offering: Offering, status: int, document: dict[str, Any]
    ) -> MachineEntry:
        """A good answer without our machine: a refusal in parts, or nobody knows what."""
        where = f"pool {self._pool}: {offering.id}"
        if status == _ACCEPTED:
            told = f"{where}: accepted; the machine is not there yet"
            await self._attempts.unclear(identity.node_id)
            return await self._found_or(identity, Unavailable(told))
        errors = document.get("errors")
        if isinstance(errors, list) and errors and not document.get("machines"):
            raise _zone_error(where, errors[0])
        told = f"{where}: answered well, with no machine and no reason: {shown(repr(document))}"
        if self._visibility == 0.0:
            return await self._found_or(identity, NoCapacity(told))
        await self._attempts.none_given(identity.node_id)
        return await self._found_or(identity, Unavailable(told))

    async def _found_or(self, identity: Identity, otherwise: ProviderError) -> MachineEntry:
        machine = await self._find_again(identity)
        if machine is None:
            raise otherwise
        return machine

    def _order(
        self, request: LaunchRequest, identity: Identity, offering: Offering
    ) -> dict[str, Any]:
        order: dict[str, Any] = {
            "name": identity.name,
            "tags": identity.tags,
            "zone": offering.zone,
            "machine_type": offering.machine_type,
            "market": offering.market.value,
            "max_price": offering.price_micros,
            "count": 1,
            "user_data": request.bootstrap,
        }
        return order | ({"token": identity.name} if self._tokens else {})


def _zone_error(where: str, error: Any) -> ProviderError:
    """What a refusal within a good answer means. Its code is all that is relied on."""
    told = f"{where}: {shown(repr(error))}"
    code = error.get("code") if isinstance(error, dict) else None
    return error_of(code, told) if isinstance(code, str) else Unavailable(told)
