"""What a scenario asks of a vendor: to misbehave in one way, and what its books say.

A new provider brings one class like this, with its real client library on the other side. All times
are seconds of the running loop's clock as `now` shows it.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from dataclasses import dataclass

from elasticd.runtime.config import PoolConfig

POOL, CLUSTER = "pool", "testing"


class Ask(enum.StrEnum):
    """What the vendor's API is asked."""

    OFFERS = "offers"
    RENT = "rent"
    FIND = "find"
    LIST = "list"
    END = "end"
    NOTICES = "notices"
    LOG = "log"


class Refusal(enum.StrEnum):
    """Why the vendor rents out nothing."""

    SOLD_OUT = "sold out"
    NO_QUOTA = "no quota"
    NO_BALANCE = "no balance"
    BAD_KEY = "bad key"
    TOO_DEAR = "too dear"
    INVALID = "invalid"


class Garble(enum.StrEnum):
    """What becomes of answers on their way."""

    ERROR_PAGE = "a proxy's error page"
    ERROR_PAGE_AFTER = "the same, although the call was carried out"
    NOT_FOUND_PAGE = "a proxy's page that says 404"
    PLAIN_TEXT = "plain text, called a success"
    CUT_SHORT = "it ends in the middle"
    NUMBERS_AS_TEXT = "numbers are texts"
    NO_ADDRESS = "machines without an address"
    UNKNOWN_STATE = "machines in a state that nobody has heard of"
    LISTED_TWICE = "each machine twice"
    ENTRY_BROKEN = "one entry lacks what identifies it"
    NULL = "nothing where the list should be"
    MISSING = "the list is not in it"
    EMPTY = "an empty list that calls itself whole"
    SHRUNKEN = "half of the list, that calls itself whole"


@dataclass(frozen=True, slots=True)
class Place:
    """One machine type in one zone, rented by the hour at `micros`."""

    zone: str
    kind: str = "small"
    gpu_kind: str = "L4"
    micros: int = 400_000


@dataclass(frozen=True, slots=True)
class Call:
    """A call that the vendor has met. `place` of rents alone; `status` `None`: never answered."""

    at: float
    ask: Ask
    place: tuple[str, str] | None
    status: int | None


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine of the books. `running`: it has come up. `node_id` is whose name it bears."""

    id: str
    node_id: str
    address: str
    place: tuple[str, str]
    created_at: float
    ended_at: float | None
    costs: bool
    running: bool
    seconds_paid: float
    micros: int


class Vendor(ABC):
    """One account, empty at first and well. Each way to misbehave lasts until `well`."""

    @abstractmethod
    def pool(self) -> PoolConfig:
        """The provider under test, over this vendor's wire; for one life of a controller."""

    @abstractmethod
    def now(self) -> float:
        """Seconds."""

    @abstractmethod
    def offer(self, *places: Place) -> None:
        """What can be rented from now on, without end."""

    @abstractmethod
    def refuse(self, why: Refusal, *places: Place) -> None:
        """Nothing is rented out there (nowhere, if none is named), and offers do not tell so."""

    @abstractmethod
    def give_only(self, count: int, *, told: bool) -> None:
        """Rents are answered well, but after `count` there is no machine in the answers.

        `told`: they say that there is none left; else they say nothing at all.
        """

    @abstractmethod
    def lag(self, *, listed: float = 0.0, found: float = 0.0, tagged: float = 0.0) -> None:
        """Machines are listed, known by their id and name, and show their tags so much later."""

    @abstractmethod
    def lose_answers(self, ask: Ask, times: int = 1) -> None:
        """They are carried out, and nobody hears of it."""

    @abstractmethod
    def throttle(self, *asks: Ask, after: float | None = None) -> None:
        """These calls (all, if none is named) are asked too often; `after`: when to come again."""

    @abstractmethod
    def go_away(self) -> None:
        """Every call fails at the vendor's side."""

    @abstractmethod
    def hang(self) -> None:
        """Every call is accepted and never answered."""

    @abstractmethod
    def garble(self, how: Garble, *asks: Ask) -> None:
        """What is answered to these calls (all that have such an answer, if none is named)."""

    @abstractmethod
    def well(self) -> None:
        """Nothing is wrong any more."""

    @abstractmethod
    def take(self, machine_id: str) -> None:
        """The market takes a machine at once, without a word."""

    @abstractmethod
    def plant(self, node_id: str, ledger_id: str) -> str:
        """A machine marked as one of this cluster's pool and of that ledger; its id."""

    @abstractmethod
    def print_line(self, machine_id: str, line: str) -> None:
        """A machine prints a line as it comes up."""

    @abstractmethod
    def machines(self) -> list[Machine]:
        """Every machine that ever was, in the order of creation."""

    @abstractmethod
    def calls(self) -> list[Call]:
        """Every call ever, in order."""

    def paid(self) -> list[Machine]:
        """The machines that cost money now."""
        return [machine for machine in self.machines() if machine.costs]

    def count(self, ask: Ask, since: float = 0.0, until: float = float("inf")) -> int:
        """Calls of a kind in a span of time."""
        return sum(call.ask is ask and since <= call.at < until for call in self.calls())

    def rents_at(self, place: Place, since: float = 0.0) -> list[float]:
        """When it was asked for."""
        key = (place.zone, place.kind)
        return [call.at for call in self.calls() if call.place == key and call.at >= since]

    def money(self) -> int:
        """What everything has cost so far, in millionths."""
        return round(sum(m.micros * m.seconds_paid / 3600.0 for m in self.machines()))

    def node_with_two_machines(self) -> list[str]:
        """Nodes for which more than one machine was ever made."""
        nodes = [machine.node_id for machine in self.machines()]
        return sorted({node for node in nodes if nodes.count(node) > 1})
