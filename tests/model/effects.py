"""Which faults there are, and when one of them has really shown.

`USED` counts how often each rule did something and each fault happened, over all examples of a
process, so that a long run can show that it has tried everything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, get_args

from elasticd_providers.fake.calls import Call
from elasticd_providers.fake.cloud import Cloud
from elasticd_providers.fake.desk import Desk
from elasticd_providers.fake.faults import (
    BodyEffect,
    CallFault,
    CreateEffect,
    ErrorEffect,
    Faults,
    TransportEffect,
)

USED: Counter[str] = Counter()

LONGEST: dict[str, float] = {}
"""The most seconds that something took that has a limit."""


def took(what: str, seconds: float) -> None:
    """One more measurement of it."""
    LONGEST[what] = max(LONGEST.get(what, 0.0), seconds)


_READING: Final = ("list", "find", "offers", "notices", "boot_log")
_OPERATIONS: Final = ("list", "find", "offers", "create", "terminate", "notices", "boot_log")
_LISTS: Final = ("list", "find", "offers", "create", "notices")
_ENTRIES: Final = ("list", "find", "create")
_ANYWHERE: Final = ("html", "bare_404", "html_after", "truncated", "text")
_OF_CREATION: Final = ("out_of_stock", "quota", "price", "no_balance", "invalid")


def _operations_of(effect: str) -> tuple[str, ...]:
    """Where an effect can do anything, and where a vendor could be so."""
    if effect in get_args(CreateEffect) or effect in _OF_CREATION:
        return ("create",)
    if effect == "not_found":
        return ("terminate", "boot_log")
    if effect in ("shrunken", "page_lost"):
        return ("list",)
    if effect in ("no_address", "odd_state", "duplicates", "bad_entry", "strings", "empty"):
        return _ENTRIES if effect != "empty" else ("list", "find", "offers")
    if effect in ("null", "missing"):
        return _LISTS
    return _OPERATIONS


EFFECTS: Final[Mapping[str, tuple[str, ...]]] = {
    effect: _operations_of(effect)
    for kind in (TransportEffect, ErrorEffect, BodyEffect, CreateEffect)
    for effect in get_args(kind)
}
"""Every way in which a call can go wrong, and the operations to which it can happen."""

BUYING: Final = ("create", "find")
ENDING: Final = ("terminate", "boot_log")
LOOKING: Final = ("list", "offers", "notices")


HARD: Final[Mapping[tuple[str, ...], tuple[tuple[str, str], ...]]] = {
    BUYING: tuple(
        ("create", effect)
        for effect in (
            *("lost", "hang_after", "html_after", "truncated", "delayed", "slow"),
            *("late", "accepted", "unlisted", "twice", "null"),
        )
    ),
    ENDING: (("terminate", "not_found"), ("terminate", "lost"), ("terminate", "hang")),
    LOOKING: tuple(("list", effect) for effect in ("empty", "shrunken", "page_lost", "overloaded")),
}
"""Those of each kind of call that are the hardest to bear, and so are tried the most."""

ITS_OWN: Final[Mapping[tuple[str, ...], tuple[tuple[str, str], ...]]] = {
    BUYING: tuple(
        ("create", effect)
        for effect in (
            *("out_of_stock", "quota", "price", "no_balance", "invalid", "short", "short_errors"),
            *("bad_entry", "no_address", "odd_state", "strings", "duplicates", "missing"),
        )
    ),
    ENDING: (("boot_log", "not_found"), ("terminate", "conflict")),
    LOOKING: tuple(
        ("list", effect)
        for effect in ("bad_entry", "odd_state", "duplicates", "strings", "null", "missing")
    ),
}
"""Those that happen to few kinds of calls."""


def effects_of(operations: tuple[str, ...]) -> list[tuple[str, str]]:
    """What can go wrong with calls of these kinds, by operation and effect."""
    return [(o, e) for e, met in sorted(EFFECTS.items()) for o in operations if o in met]


WORLD: Final[Mapping[str, tuple[Any, ...]]] = {
    "list_lag": (8.0, 25.0),
    "ended_lag": (10.0, 40.0),
    "tags_lag": (5.0, 60.0),
    "lookup_lag": (3.0, 8.0),
    "ended_lookup_lag": (10.0, 60.0),
    "unknown_lag": (5.0, 9.0),
    "out_of_stock": (("zone-a/*",), ("*/g1.small/*",), ("*",)),
    "never_active": (("*",), ("zone-a/*",)),
    "boot_fails": (("*",), ("*/g2.large/*",)),
    "price_factor": (0.5, 1.5, 4.0),
    "terminate_ignored": (10.0, 60.0),
    "spot_lifetime": (20.0, 90.0),
}
"""The world's vices and how bad they may be. Lags of the search by name stay below the pool's
`visibility`, those of lists below its `visibility_grace`: that is what these settings promise."""


AGENT: Final = ("away", "silent", "incomplete", "headless", "forgetful", "lost its memory")
"""How the agent may be."""

POINTS: Final = tuple(
    f"{when} {what}"
    for what in ("create", "find", "terminate", "list", "commit", "start", "stop")
    for when in ("before", "during", "after")
    if when != "during" or what not in ("commit", "start", "stop")
)
"""Where a controller is killed: around each commit, each call of the vendor and each order."""

RULES: Final = (
    *(
        "time passes",
        "things go on",
        "the cloud has a vice",
        "looking goes wrong",
        "buying goes wrong",
    ),
    *("ending goes wrong", "the vendor gets well"),
    *("taken with notice", "taken without notice", "withdrawn", "a machine turns up, ours"),
    *("a machine turns up, a stranger's", "a machine turns up, another ledger's", "adopted"),
    *("ended by their owner", "an engine dies", "a connection breaks", "mismatch", "gpus hidden"),
    *("restarted in order", "killed anywhere", "the disk is full", "the disk is slow"),
    *("the clock is set", "the day turns", "demand changes", "down", "serve", "drain", "undrain"),
    *("hold", "hold released", "the budget changes", "the models change", "a pool changes"),
    *("a pool closes", "a pool comes or goes", "a pool with machines is kept"),
    *("the configuration cannot be read", "a commit fails", "denied", "late", "twin", "stray"),
)

EXPECTED: Final = frozenset(
    {*EFFECTS, *WORLD, *RULES, *(f"agent {kind}" for kind in AGENT)}
    | {f"killed {point}" for point in POINTS}
)
"""All that must have been tried, and must have done something, before anything is proved."""


def ill(desk: Desk) -> bool:
    """Whether anything is still wrong, or going to be."""
    faults = desk.cloud.faults
    if faults.model_copy(update={"calls": ()}) != Faults():
        return True
    met = [*desk._met, *[0] * len(faults.calls)]
    return any(f.times is None or met[n] < f.skip + f.times for n, f in enumerate(faults.calls))


def showed(desk: Desk, call: Call, fault: CallFault, body: bytes) -> bool:
    """Whether the answer is another one than it would have been."""
    if call.operation not in _READING:
        return True
    return desk._answer(call, None).body != body


def count_world(cloud: Cloud, call: Call) -> None:
    """Which vices of the world this call is about to meet."""
    faults = cloud.faults
    if faults.model_copy(update={"calls": ()}) == Faults():
        return
    match call.operation:
        case "list":
            _count_list(cloud, faults)
        case "find":
            _count_find(cloud, faults, call.target)
        case "create":
            _count_create(faults, call)
        case "offers" if faults.price_factor != 1.0:
            USED["price_factor"] += 1
        case "terminate":
            _count_terminate(cloud, faults, call.target)
        case _:
            pass


def _count_list(cloud: Cloud, faults: Faults) -> None:
    now = cloud.now
    for machine in cloud.machines():
        if machine.costs(now):
            USED["list_lag"] += now < machine.created_at + faults.list_lag
            USED["tags_lag"] += now < machine.created_at + faults.tags_lag
        elif machine.gone_at is not None and machine.gone_at <= now:
            USED["ended_lag"] += now - machine.gone_at < faults.ended_lag


def _count_find(cloud: Cloud, faults: Faults, name: str) -> None:
    now = cloud.now
    for machine in cloud.machines():
        if machine.name != name:
            continue
        if machine.costs(now):
            USED["lookup_lag"] += now < machine.created_at + faults.lookup_lag
        elif machine.gone_at is not None and machine.gone_at <= now:
            USED["ended_lookup_lag"] += now - machine.gone_at < faults.ended_lookup_lag


def _count_create(faults: Faults, call: Call) -> None:
    for name in ("out_of_stock", "never_active", "boot_fails"):
        USED[name] += bool(getattr(faults, name))
    USED["spot_lifetime"] += faults.spot_lifetime is not None


def _count_terminate(cloud: Cloud, faults: Faults, machine_id: str) -> None:
    for machine in cloud.machines():
        if machine.id == machine_id and machine.costs(cloud.now):
            USED["unknown_lag"] += cloud.now < machine.created_at + faults.unknown_lag
            asked = cloud.now if machine.stop_asked_at is None else machine.stop_asked_at
            ignored = cloud.now < asked + faults.terminate_ignored
            USED["terminate_ignored"] += ignored and machine.stopping_at is None
