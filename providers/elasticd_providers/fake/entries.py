"""What the vendor's documents say, read with suspicion.

What makes a machine known (id, name, tags, state) must be readable, or the whole list is not to be
trusted: a list that leaves out what it cannot read looks complete and is not. What merely describes
it (address, price, type) may be missing or odd: then it is not known, and the machine still counts.
"""

from __future__ import annotations

import math
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from elasticd.provider import Instance, InstanceState, Market, Offering, Unavailable
from elasticd_providers.fake.client import shown
from elasticd_providers.fake.identity import Identity, identity_of

_STATES = {
    "ordered": InstanceState.PENDING,
    "provisioning": InstanceState.PENDING,
    "active": InstanceState.RUNNING,
    "stopping": InstanceState.STOPPING,
    "ended": InstanceState.STOPPING,
}
ENDED = "ended"
_MICROS = 1_000_000

T = TypeVar("T", bound=BaseModel)


def _micros(value: Any) -> int:
    """An amount per hour, `"0.40"`, in millionths; never rounded down."""
    try:
        amount = Decimal(value if isinstance(value, str) else str(value))
    except InvalidOperation:
        raise ValueError("not an amount") from None
    if not amount.is_finite() or amount < 0:
        raise ValueError("not an amount")
    return math.ceil(amount * _MICROS)


Micros = Annotated[int, BeforeValidator(_micros)]


class Sale(BaseModel):
    """What is, or could be, rented: the part that offers and machines have in common."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    zone: str = Field(min_length=1)
    machine_type: str = Field(min_length=1)
    market: Literal["spot", "on_demand"]
    gpu_kind: str
    gpu_count: int = Field(ge=0)
    price: Micros
    currency: str = Field(pattern="^[A-Z]{3}$")
    gpu_memory_mib: int | None = None

    def offering(self, pool: str, available: bool = True) -> Offering:
        return Offering(
            pool=pool,
            zone=self.zone,
            machine_type=self.machine_type,
            gpu_kind=self.gpu_kind,
            gpu_count=self.gpu_count,
            market=Market(self.market),
            price_micros=self.price,
            currency=self.currency,
            available=available,
            gpu_memory_mib=self.gpu_memory_mib,
        )


class OfferEntry(Sale):
    """One of the vendor's offers."""

    available: bool


class MachineEntry(BaseModel):
    """One machine in an answer; what only describes it stays as it came, in `rest`."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    id: str = Field(min_length=1)
    name: str
    state: str
    tags: dict[str, str] = Field(default_factory=dict)
    rest: dict[str, Any] = Field(default_factory=dict)

    @property
    def identity(self) -> Identity | None:
        return identity_of(self.name, self.tags)

    @property
    def ended(self) -> bool:
        return self.state == ENDED

    @property
    def age_order(self) -> tuple[float, str]:
        """The oldest first; one that does not tell its age last."""
        created = self.created_at
        return (math.inf if created is None else created, self.id)

    @property
    def created_at(self) -> float | None:
        """The vendor's wall clock in seconds."""
        try:
            created = float(self.rest.get("created_at", math.nan))
        except (TypeError, ValueError):
            return None
        return created if math.isfinite(created) else None

    def instance(self, pool: str, node_id: str | None, ledger_id: str | None) -> Instance:
        address = self.rest.get("address")
        return Instance(
            instance_id=self.id,
            node_id=node_id,
            ledger_id=ledger_id,
            state=_STATES.get(self.state, InstanceState.UNKNOWN),
            offering=self._offering(pool),
            address=address if isinstance(address, str) and address else None,
            launched_at=self.created_at,
        )

    def _offering(self, pool: str) -> Offering | None:
        try:
            return Sale.model_validate(self.rest).offering(pool)
        except ValidationError:
            return None


def read_offers(document: dict[str, Any], where: str) -> list[OfferEntry]:
    """Raises `Unavailable` unless every entry can be read."""
    return [_read(OfferEntry, entry, where) for entry in _list(document, "offers", where)]


def read_machines(document: dict[str, Any], where: str) -> list[MachineEntry]:
    """Raises `Unavailable` unless it is known of every entry which machine it is."""
    entries = []
    for entry in _list(document, "machines", where):
        rest = entry if isinstance(entry, dict) else {}
        entries.append(_read(MachineEntry, {**rest, "rest": rest}, where))
    return entries


class NoticeEntry(BaseModel):
    """One of the vendor's notices."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    id: str = Field(min_length=1)
    machine_id: str = Field(min_length=1)
    status: str
    seconds_left: float = Field(ge=0, allow_inf_nan=False)


def read_notices(document: dict[str, Any], where: str) -> list[NoticeEntry]:
    """Raises `Unavailable` unless every entry can be read."""
    return [_read(NoticeEntry, entry, where) for entry in _list(document, "notices", where)]


def _list(document: dict[str, Any], key: str, where: str) -> list[Any]:
    found = document.get(key)
    if not isinstance(found, list):
        raise Unavailable(f"{where}: {key} is no list but {shown(repr(found))}")
    return found


def _read(kind: type[T], entry: Any, where: str) -> T:
    try:
        return kind.model_validate(entry)
    except ValidationError as bad:
        places = ", ".join(sorted({".".join(map(str, e["loc"])) for e in bad.errors()}))
        raise Unavailable(f"{where}: an entry is wrong at {places}: {shown(repr(entry))}") from None
