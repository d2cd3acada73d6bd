"""The fake cloud as the vendor: its own desk and its own client, time being the event loop's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from elasticd.provider import PoolContext, ProviderPlugin
from elasticd.runtime.config import PoolConfig
from elasticd.runtime.observer import WatchPeriods
from elasticd_providers.fake import FakeOptions, FakeProvider, create_fake
from elasticd_providers.fake.catalog import Offer, Settings
from elasticd_providers.fake.client import Reply
from elasticd_providers.fake.cloud import Cloud, Order
from elasticd_providers.fake.desk import Desk
from elasticd_providers.fake.faults import CallFault, Faults
from elasticd_providers.fake.identity import Identity, identity_of
from elasticd_providers.fake.machines import Machine as CloudMachine
from elasticd_providers.fake.orders import Refusal as CloudRefusal
from elasticd_providers.fake.routes import call_of
from tests.cases.vendor import CLUSTER, POOL, Ask, Call, Garble, Machine, Place, Refusal, Vendor
from tests.providers.fake_site import DirectWire

_TOKEN = "fake-token"
_REFUSALS: Mapping[Refusal, tuple[int, str]] = {
    Refusal.SOLD_OUT: (409, "out_of_stock"),
    Refusal.NO_QUOTA: (403, "quota_exceeded"),
    Refusal.NO_BALANCE: (402, "insufficient_balance"),
    Refusal.BAD_KEY: (401, "bad_token"),
    Refusal.TOO_DEAR: (409, "price_above_limit"),
    Refusal.INVALID: (400, "invalid_request"),
}
_OPERATIONS: Mapping[Ask, str] = {
    Ask.OFFERS: "offers",
    Ask.RENT: "create",
    Ask.FIND: "find",
    Ask.LIST: "list",
    Ask.END: "terminate",
    Ask.NOTICES: "notices",
    Ask.LOG: "boot_log",
}
_ASKS = {operation: ask for ask, operation in _OPERATIONS.items()}
_EFFECTS: Mapping[Garble, str] = {
    Garble.ERROR_PAGE: "html",
    Garble.ERROR_PAGE_AFTER: "html_after",
    Garble.NOT_FOUND_PAGE: "bare_404",
    Garble.PLAIN_TEXT: "text",
    Garble.CUT_SHORT: "truncated",
    Garble.NUMBERS_AS_TEXT: "strings",
    Garble.NO_ADDRESS: "no_address",
    Garble.UNKNOWN_STATE: "odd_state",
    Garble.LISTED_TWICE: "duplicates",
    Garble.ENTRY_BROKEN: "bad_entry",
    Garble.NULL: "null",
    Garble.MISSING: "missing",
    Garble.EMPTY: "empty",
    Garble.SHRUNKEN: "shrunken",
}
_OF_ANY_ANSWER = {
    Garble.ERROR_PAGE,
    Garble.ERROR_PAGE_AFTER,
    Garble.NOT_FOUND_PAGE,
    Garble.PLAIN_TEXT,
    Garble.CUT_SHORT,
}
_OF_LISTS = (Ask.FIND, Ask.LIST)


class FakeVendor(Vendor):
    """Without client tokens, the harder way. `clock`: seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._cloud = _Choosy(clock, Settings(boot_seconds=30.0, stop_seconds=5.0))
        self._desk = Desk(self._cloud, _TOKEN)
        self._wire = _Booked(self._desk)
        self.offer(Place("zone-a"), Place("zone-b"))

    def pool(self) -> PoolConfig:
        def create(context: PoolContext, options: FakeOptions) -> FakeProvider:
            return create_fake(context, options, wire=self._wire, wall=self.now)

        told = {"url": "http://127.0.0.1", "visibility": "60s", "notices_every": "30s"}
        options = FakeOptions.model_validate(told)
        return PoolConfig(ProviderPlugin(FakeOptions, create), options, periods=WatchPeriods())

    def now(self) -> float:
        return self._cloud.now

    def offer(self, *places: Place) -> None:
        offers = tuple(
            Offer(zone=p.zone, machine_type=p.kind, price=p.micros, gpu_kind=p.gpu_kind)
            for p in places
        )
        self._cloud.settings = self._cloud.settings.model_copy(update={"offers": offers})

    def refuse(self, why: Refusal, *places: Place) -> None:
        keys = [(p.zone, p.kind) for p in places] or [
            (offer.zone, offer.machine_type) for offer in self._cloud.settings.offers
        ]
        self._cloud.refused |= dict.fromkeys(keys, why)

    def give_only(self, count: int, *, told: bool) -> None:
        effect = "short_errors" if told else "short"
        self._script({"operation": "create", "effect": effect, "skip": count, "times": None})

    def lag(self, *, listed: float = 0.0, found: float = 0.0, tagged: float = 0.0) -> None:
        lags = {"list_lag": listed, "unknown_lag": found, "lookup_lag": found, "tags_lag": tagged}
        self._desk.set_faults(Faults(**lags))

    def lose_answers(self, ask: Ask, times: int = 1) -> None:
        self._script({"operation": _OPERATIONS[ask], "effect": "lost", "times": times})

    def throttle(self, *asks: Ask, after: float | None = None) -> None:
        more = {"effect": "throttled", "times": None, "retry_after": after}
        names = [_OPERATIONS[ask] for ask in asks] or ["*"]
        self._script(*({"operation": name, **more} for name in names))

    def go_away(self) -> None:
        self._script({"operation": "*", "effect": "overloaded", "times": None})

    def hang(self) -> None:
        self._script({"operation": "*", "effect": "hang", "times": None})

    def garble(self, how: Garble, *asks: Ask) -> None:
        usual = tuple(_OPERATIONS) if how in _OF_ANY_ANSWER else _OF_LISTS
        more = {"effect": _EFFECTS[how], "times": None}
        self._script(*({"operation": _OPERATIONS[ask], **more} for ask in asks or usual))

    def well(self) -> None:
        self._cloud.refused = {}
        self._desk.set_faults(Faults())

    def take(self, machine_id: str) -> None:
        self._cloud.reclaim(machine_id, None)

    def plant(self, node_id: str, ledger_id: str) -> str:
        identity, offer = (
            Identity(CLUSTER, POOL, ledger_id, node_id),
            self._cloud.settings.offers[0],
        )
        order = Order(identity.name, offer.zone, offer.machine_type, tags=identity.tags)
        return self._cloud.plant(order).id

    def print_line(self, machine_id: str, line: str) -> None:
        self._cloud.print_line(machine_id, line)

    def machines(self) -> list[Machine]:
        return [_told(machine, self._cloud.now) for machine in self._cloud.machines()]

    def calls(self) -> list[Call]:
        return list(self._wire.book)

    def _script(self, *calls: dict[str, Any]) -> None:
        self._desk.set_faults(Faults(calls=tuple(CallFault(**call) for call in calls)))


class _Choosy(Cloud):
    """Refuses to rent out in some places, for reasons that its offers do not show."""

    def __init__(self, clock: Callable[[], float], settings: Settings) -> None:
        super().__init__(clock, settings)
        self.refused: dict[tuple[str, str], Refusal] = {}

    def create(self, order: Order, delay: float = 0.0) -> CloudMachine:
        why = self.refused.get((order.zone, order.machine_type))
        if why is not None:
            raise CloudRefusal(*_REFUSALS[why], f"{order.key}: {why.value}")
        return super().create(order, delay)


class _Booked(DirectWire):
    """Keeps a record of every call, however many there are."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._cloud = desk.cloud
        self.book: list[Call] = []

    async def send(
        self, method: str, path: str, query: Mapping[str, str], body: Mapping[str, Any] | None
    ) -> Reply:
        call = call_of(method, path, query, body, _TOKEN)
        assert call is not None
        ask, number = _ASKS[call.operation], len(self.book)
        place = (str(body["zone"]), str(body["machine_type"])) if body and ask is Ask.RENT else None
        at = self._cloud.now
        self.book.append(Call(at, ask, place, None))
        reply = await super().send(method, path, query, body)
        self.book[number] = Call(at, ask, place, reply.status)
        return reply


def _told(machine: CloudMachine, now: float) -> Machine:
    identity = identity_of(machine.name, machine.tags)
    ended = machine.gone_at is not None and machine.gone_at <= now
    return Machine(
        id=machine.id,
        node_id=identity.node_id if identity is not None else "",
        address=machine.address,
        place=(machine.zone, machine.machine_type),
        created_at=machine.created_at,
        ended_at=machine.gone_at if ended else None,
        costs=machine.costs(now),
        running=machine.state(now) == "active",
        seconds_paid=machine.seconds_paid(now),
        micros=machine.price,
    )


def make(folder: Path, clock: Callable[[], float]) -> FakeVendor:
    """As `conftest.VENDORS` wants it; nothing of it lies on a disk."""
    return FakeVendor(clock)
