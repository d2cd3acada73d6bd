"""What the suite asks of a vendor's stand-in. A new provider writes one class like this.

A subject is a vendor that can be made to misbehave: the provider under test talks to it as it would
to the real one, by its real client library over a real wire, and the suite asks it on the side what
machines there really are.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from elasticd.provider import Provider


class Trouble(enum.StrEnum):
    """What can be wrong at the vendor's side. Each lasts until `heal`, if nothing else is said."""

    SOLD_OUT = "nothing is to be had"
    FIRST_SOLD_OUT = "the first of the offerings is not to be had, the others are"
    ANSWER_LOST = "the next launch or termination is carried out and never answered"
    LIST_LAG = "machines made from now on are not in lists"
    NOT_FOUND_YET = "machines made from now on are not found by their id, though they are there"
    LATE_DELIVERY = "the next launch is accepted without a machine, which comes with `heal`"
    LATE_AFTER_ERROR = "the next launch fails at the vendor's side; its machine comes with `heal`"
    DELIVERED_UNTOLD = "the next launch is answered well and without its machine, which is there"
    NOTHING_DELIVERED = "launches are answered well, without a machine, and none comes"
    DELIVERED_TWICE = "the next launch makes two machines and tells of one"
    HANGING = "every call is accepted and never answered, and does nothing"
    UNKNOWN_STATE = "machines are in a state that nobody has heard of"
    ERROR_PAGE = "answers are a proxy's error page"
    NOT_FOUND_PAGE = "answers are a proxy's page that says 404"
    PLAIN_TEXT = "answers are plain text, and called a success"
    CUT_SHORT = "answers end in the middle"
    LIST_MISSING = "lists come without the list in them"
    ENTRY_BROKEN = "one entry of a list lacks what identifies it"
    NUMBERS_AS_TEXT = "numbers in answers are texts"
    NO_ADDRESS = "machines are told without their addresses"
    LISTED_TWICE = "each machine stands twice in a list"
    THROTTLED = "every call is asked to come again after `Subject.pause`"
    BAD_CREDENTIALS = "every call is refused: nobody knows these credentials"
    FORBIDDEN = "every call is refused: the account may not do this"
    CANNOT_PAY = "launches are refused: the account cannot pay"
    NO_QUOTA = "launches are refused: the account may not have more"
    TOO_EXPENSIVE = "launches are refused: the market asks more than the limit"
    INVALID = "launches are refused: the request is wrong and stays wrong"
    IN_CONFLICT = "launches and terminations are refused for now: something else is under way"
    BROKEN = "every call fails at the vendor's side"
    UNREACHABLE = "nobody answers at all"


class CannotProvoke(Exception):
    """This vendor cannot be made to do that. The message is the reason, shown with the skip."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine that is there and paid for, as the vendor's own books have it."""

    instance_id: str
    node_id: str


class Subject(ABC):
    """One vendor for the suite; one object serves all tests of a run, one test at a time.

    `secrets`: texts that the provider is given and that must never be seen. `pause`: seconds that
    a throttled call is told to wait, `None` where this vendor never tells. `remembers`: whether a
    launch that is repeated after the machine ended still finds that machine.
    """

    secrets: tuple[str, ...] = ()
    pause: float | None = None
    remembers: bool = True

    def unusable(self) -> str | None:
        """Why it cannot run on this host; `None` where it can."""
        return None

    def open(self, folder: Path) -> None:  # noqa: B027  (optional)
        """Once, before the first test. `folder` is empty and stays until `close`."""

    def close(self) -> None:  # noqa: B027  (optional)
        """Once, after the last test: nothing of the vendor is left."""

    def begin(self, folder: Path) -> None:  # noqa: B027  (optional)
        """Before each test. `folder` is empty and the test's own."""

    @abstractmethod
    def provider(self, *, cluster: str, ledger: str, pool: str) -> Provider:
        """A new provider object over the same vendor, with at least two offerings in the pool.

        The second one of the same names is what elasticd has after a crash.
        """

    @abstractmethod
    async def machines(self) -> list[Machine]:
        """Every machine that is there and paid for, not by way of the provider."""

    @abstractmethod
    async def provoke(self, trouble: Trouble) -> None:
        """From now on the vendor is in `trouble`. Raises `CannotProvoke`."""

    @abstractmethod
    async def heal(self) -> None:
        """From now on all is well, and what was to come has come."""

    async def bootstrap_of(self, instance_id: str) -> str:
        """The bootstrap script as the machine has got it. Raises `CannotProvoke`."""
        raise CannotProvoke("what a machine was given cannot be read here")

    async def give_notice(self, instance_id: str, seconds: float) -> None:
        """The vendor will take the machine in `seconds` and says so. Raises `CannotProvoke`."""
        raise CannotProvoke("this vendor gives no notice")

    async def withdraw_notice(self, instance_id: str) -> None:
        """The vendor takes that back. Raises `CannotProvoke`."""
        raise CannotProvoke("this vendor withdraws no notice")
