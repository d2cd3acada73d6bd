"""The fake cloud itself: pure, synchronous and deterministic, with the clock handed in.

It knows nothing of elasticd, of HTTP or of time: `clock` answers seconds, in a test perhaps of a
virtual day. Two clouds with the same calls at the same times are in the same state. What goes
wrong in the *world* (lists that lag, sold-out zones, machines that do not boot) goes wrong here;
what goes wrong with a *call* (lost answers, garbled bodies) is `desk`'s.

    cloud = Cloud(clock=lambda: now)
    machine = cloud.create(Order(name="x", zone="zone-a", machine_type="g1.small"))
    cloud.listing(), cloud.find("x"), cloud.terminate(machine.id)
    cloud.paid()                             # the truth: what costs money now
    Cloud.from_json(clock, cloud.to_json())  # the same cloud after a restart
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any

from elasticd_providers.fake.catalog import Offer, Settings
from elasticd_providers.fake.faults import Faults
from elasticd_providers.fake.machines import CloudState, Machine
from elasticd_providers.fake.orders import Order, Refusal, Sight, Stock

__all__ = ["Cloud", "Order", "Refusal", "Sight", "Stock"]


class Cloud:
    """All machines that ever were, and what may be done with them. Raises `Refusal`."""

    def __init__(
        self,
        clock: Callable[[], float],
        settings: Settings | None = None,
        faults: Faults | None = None,
    ) -> None:
        self._clock = clock
        self._skipped = 0.0
        self._machines: dict[str, Machine] = {}
        self.settings = settings or Settings()
        self.faults = faults or Faults()

    @property
    def now(self) -> float:
        """Seconds by the clock handed in, plus what was skipped."""
        return self._clock() + self._skipped

    # What a customer may ask.

    def stock(self) -> list[Stock]:
        """Every offer, sold-out ones included."""
        return [Stock(o, self._price(o), self._left(o)) for o in self.settings.offers]

    def create(self, order: Order, delay: float = 0.0) -> Machine:
        """Makes a machine, which is there `delay` seconds from now."""
        repeated = self._of_token(order)
        if repeated is not None:
            return repeated
        offer = self._admitted(order)
        return self._add(order, offer, self.now + delay)

    def listing(self) -> list[Sight]:
        """The account's machines in the order of their ids, as far as lists know of them."""
        return self._sights(self.faults.list_lag, self.faults.ended_lag)

    def find(self, name: str) -> list[Sight]:
        """The machines of exactly this name, oldest first; those that ended lately included."""
        lag, ended_lag = self.faults.lookup_lag, self.faults.ended_lookup_lag
        living = {s.machine.id: s for s in self._sights(lag, ended_lag) if s.machine.name == name}
        ended = [
            Sight(machine, "ended", self._tags(machine))
            for machine in self._machines.values()
            if machine.name == name and machine.id not in living and self._remembered(machine)
        ]
        return sorted(
            (*living.values(), *ended), key=lambda s: (s.machine.created_at, s.machine.id)
        )

    def terminate(self, machine_id: str) -> CloudState:
        """Begins the end of a machine, or tells how far it is; `machine_not_found` once ended."""
        machine, now = self._existing(machine_id), self.now
        if now < machine.created_at + self.faults.unknown_lag:
            raise _not_found(machine_id)
        if machine.stop_asked_at is None:
            machine.stop_asked_at = now
        ignored_until = machine.stop_asked_at + self.faults.terminate_ignored
        if machine.stopping_at is None and now >= ignored_until:
            machine.stopping_at = now
            machine.ended_at = now + self.settings.stop_seconds
        return machine.state(now)

    def notices(self) -> list[Machine]:
        """The machines whose customers were told that they are going to be taken; without a
        `reclaim_at` that was taken back.
        """
        now = self.now
        return [
            m
            for m in self._machines.values()
            if m.costs(now) and m.noticed_at is not None and now >= m.noticed_at
        ]

    def boot_log(self, machine_id: str) -> str:
        """What a machine printed; also for a while after its end."""
        machine = self._machines.get(machine_id)
        if machine is None or not (machine.costs(self.now) or self._remembered(machine)):
            raise _not_found(machine_id)
        return "".join(f"{line}\n" for line in self._printed(machine))

    def reclaim(self, machine_id: str, notice: float | None) -> Machine:
        """The market takes the machine: now, or `notice` seconds after it is told."""
        machine, now = self._existing(machine_id), self.now
        takes_at, withdrawn = now + (notice or 0.0), machine.reclaim_at is None
        if machine.reclaim_at is None or takes_at < machine.reclaim_at:
            machine.reclaim_at = takes_at
        if notice is not None and (machine.noticed_at is None or withdrawn):
            self._give_notice(machine, now)
        return machine

    # What only a test may ask.

    def withdraw(self, machine_id: str) -> Machine:
        """The market changes its mind: the machine stays."""
        machine = self._existing(machine_id)
        machine.reclaim_at = None
        return machine

    def plant(self, order: Order) -> Machine:
        """A machine of somebody else: made without a look at stock, quota or price."""
        offer = self._offer(order)
        return self._add(order, offer, self.now)

    def print_line(self, machine_id: str, line: str) -> None:
        """Adds to what the machine has printed."""
        self._existing(machine_id).printed.append(line)

    def skip(self, seconds: float) -> None:
        """So much time passes at once."""
        self._skipped += seconds

    def machines(self) -> list[Machine]:
        """The truth: every machine that ever was, in the order of creation."""
        return list(self._machines.values())

    def paid(self) -> list[Machine]:
        """The truth: the machines that cost money now."""
        return [m for m in self._machines.values() if m.costs(self.now)]

    def to_json(self) -> dict[str, Any]:
        return {
            "settings": self.settings.model_dump(mode="json"),
            "faults": self.faults.model_dump(mode="json"),
            "skipped": self._skipped,
            "machines": [m.to_json() for m in self._machines.values()],
        }

    @classmethod
    def from_json(cls, clock: Callable[[], float], document: dict[str, Any]) -> Cloud:
        settings = Settings.model_validate(document["settings"])
        cloud = cls(clock, settings, Faults.model_validate(document["faults"]))
        cloud._skipped = document["skipped"]
        for entry in document["machines"]:
            machine = Machine.from_json(entry)
            cloud._machines[machine.id] = machine
        return cloud

    # How it is done.

    def _of_token(self, order: Order) -> Machine | None:
        if not (self.settings.tokens and order.token):
            return None
        for machine in self._machines.values():
            if machine.token == order.token:
                if (machine.name, machine.key) != (order.name, order.key):
                    told = f"token {order.token} was used for another request"
                    raise Refusal(409, "token_conflict", told)
                return machine
        return None

    def _admitted(self, order: Order) -> Offer:
        offer = self._offer(order)
        if self.settings.quota is not None and self._count_taken() >= self.settings.quota:
            told = f"the account may have {self.settings.quota} machines"
            raise Refusal(403, "quota_exceeded", told)
        if self._left(offer) == 0:
            raise Refusal(409, "out_of_stock", f"{offer.key} is sold out")
        price = self._price(offer)
        if order.max_price is not None and price > order.max_price:
            told = f"{offer.key} costs {price}, more than {order.max_price}"
            raise Refusal(409, "price_above_limit", told)
        return offer

    def _offer(self, order: Order) -> Offer:
        for offer in self.settings.offers:
            if offer.key == order.key:
                return offer
        raise Refusal(400, "invalid_request", f"there is no offer {order.key}")

    def _add(self, order: Order, offer: Offer, created_at: float) -> Machine:
        faults, boot = self.faults, self.settings.boot_seconds
        boot_fails = _any(faults.boot_fails, offer.key)
        never = boot_fails or _any(faults.never_active, offer.key)
        machine = Machine(
            id=f"m-{len(self._machines) + 1:06d}",
            name=order.name,
            tags=dict(order.tags),
            zone=offer.zone,
            machine_type=offer.machine_type,
            market=offer.market,
            gpu_kind=offer.gpu_kind,
            gpu_count=offer.gpu_count,
            price=self._price(offer),
            currency=offer.currency,
            address=self.settings.address or self._free_address(),
            created_at=created_at,
            active_at=None if never else created_at + boot,
            bootstrap=order.bootstrap,
            token=order.token,
            boot_fails=boot_fails,
        )
        self._machines[machine.id] = machine
        if offer.market == "spot" and faults.spot_lifetime is not None:
            machine.reclaim_at = created_at + faults.spot_lifetime
            if faults.spot_notice is not None:
                told_at = max(created_at, machine.reclaim_at - faults.spot_notice)
                self._give_notice(machine, told_at)
        return machine

    def _give_notice(self, machine: Machine, told_at: float) -> None:
        machine.noticed_at = told_at
        machine.notice_id = f"notice-{machine.id}-{told_at:.3f}"

    def _free_address(self) -> str:
        used = {m.address for m in self._machines.values() if m.taken(self.now)}
        number = 1
        while (address := f"10.77.{number // 250}.{number % 250 + 1}") in used:
            number += 1
        return address

    def _price(self, offer: Offer) -> int:
        return round(offer.price * self.faults.price_factor)

    def _left(self, offer: Offer) -> int | None:
        if _any(self.faults.out_of_stock, offer.key):
            return 0
        if offer.stock is None:
            return None
        used = sum(m.key == offer.key and m.taken(self.now) for m in self._machines.values())
        return max(0, offer.stock - used)

    def _count_taken(self) -> int:
        return sum(m.taken(self.now) for m in self._machines.values())

    def _existing(self, machine_id: str) -> Machine:
        machine = self._machines.get(machine_id)
        if machine is None or not machine.costs(self.now):
            raise _not_found(machine_id)
        return machine

    def _sights(self, lag: float, ended_lag: float) -> list[Sight]:
        """Whatever lists know: machines older than `lag`, and ended ones for `ended_lag` more."""
        now, sights = self.now, []
        for machine in self._machines.values():
            ended_ago = self._ended_ago(machine)
            if now < machine.created_at + lag:
                continue
            if ended_ago is None:
                sights.append(Sight(machine, machine.state(now), self._tags(machine)))
            elif ended_ago < ended_lag:
                sights.append(Sight(machine, "active", self._tags(machine)))
        return sights

    def _ended_ago(self, machine: Machine) -> float | None:
        if machine.gone_at is None or self.now < machine.gone_at:
            return None
        return self.now - machine.gone_at

    def _remembered(self, machine: Machine) -> bool:
        """Whether it has ended, and not long ago."""
        ended_ago = self._ended_ago(machine)
        return ended_ago is not None and ended_ago <= self.settings.remembered

    def _tags(self, machine: Machine) -> dict[str, str]:
        return machine.tags if self.now >= machine.created_at + self.faults.tags_lag else {}

    def _printed(self, machine: Machine) -> list[str]:
        lines = [f"{machine.machine_type} {machine.id} is booting"]
        if self.now >= machine.created_at + self.settings.boot_seconds:
            if machine.boot_fails:
                lines.append("driver: no usable device; boot failed")
            elif machine.active_at is not None:
                lines.append("boot finished")
        return lines + machine.printed


def _any(patterns: Sequence[str], key: str) -> bool:
    return any(fnmatchcase(key, pattern) for pattern in patterns)


def _not_found(machine_id: str) -> Refusal:
    return Refusal(404, "machine_not_found", f"there is no machine {machine_id}")
