"""What a provider's refusals lead to: the class of the error is the policy.

`NoCapacity`, `PriceTooHigh`: the offering is set aside. `QuotaExceeded`: so is its family (same
pool, market and GPU kind). `AuthFailed`, `BillingBlocked`: nothing is bought in the pool but a
probe now and then. `Rejected`, versions that differ: nothing before a reload. Calls without a
clear answer, several in a row: an outage; nothing is bought or destroyed there until a list comes.
Pauses grow with each refusal in a row and are forgotten again with time.
"""

from __future__ import annotations

from dataclasses import replace

from elasticd.core.events import LaunchFailed
from elasticd.core.fleet import Node
from elasticd.core.lifecycle import NODE_COMING, NodePhase
from elasticd.core.pool_state import (
    AUTH,
    BILLING,
    BOOT,
    OUTAGE,
    PRICE,
    QUOTA,
    REJECTED,
    STOCK,
    THROTTLED,
    VERSIONS,
    Aside,
    PoolState,
    Trouble,
)
from elasticd.core.state import State, Step, growing_pause
from elasticd.provider import Offering

OUTAGE_AFTER = 3
"""Calls in a row without a clear answer after which a provider counts as away."""

DECAY = 900.0
"""Seconds after the end of a cool-off in which one refusal is forgotten."""

BOOT_ATTEMPTS = 5
"""Machines in a row that did not become nodes, after which a pool counts as failed."""

_PAUSES = {STOCK: (15.0, 1800.0), QUOTA: (300.0, 3600.0), PRICE: (60.0, 1800.0)}
_BOOT_PAUSES = (15.0, 600.0)
_FAILED_PAUSES = (3600.0, 6 * 3600.0)
"""A pool that has failed costs at most one machine's boot time in so many seconds."""
_ACCOUNT_PAUSES = (60.0, 3600.0)

_OFFERING_KINDS = {"NoCapacity": STOCK, "QuotaExceeded": QUOTA, "PriceTooHigh": PRICE}
_ACCOUNT_KINDS = {"AuthFailed": AUTH, "BillingBlocked": BILLING}


def launch_refused(pool: PoolState, step: Step, node: Node, event: LaunchFailed) -> None:
    """A definite refusal of a launch."""
    story = f"{event.error}: {event.message}"
    pool.last_error = story
    pool.unclear = 0
    if event.error == "InstanceNotFound":
        return  # a repeated launch: the machine of the first call has ended meanwhile
    if event.error in _ACCOUNT_KINDS:
        kind = _ACCOUNT_KINDS[event.error]
        _worsen(pool, step, kind, kind, story, _ACCOUNT_PAUSES)
    elif event.error in _OFFERING_KINDS:
        _set_aside(pool, step, _OFFERING_KINDS[event.error], node.offerings, story)
    else:
        _note(pool, step, REJECTED, story)


def _set_aside(
    pool: PoolState, step: Step, kind: str, refused: tuple[Offering, ...], story: str
) -> None:
    if kind == QUOTA:
        families = {(o.market, o.gpu_kind) for o in refused}
        known = {o.id: o for o in (*(pool.offerings or ()), *refused)}
        refused = tuple(o for o in known.values() if (o.market, o.gpu_kind) in families)
    for offering in refused:
        before = pool.aside.get(offering.id)
        if before is not None and step.now < before.until and before.kind == kind:
            continue  # asked at the same time as one that was refused already: the same news
        refusals = 1 + (_remembered(before, step.now) if before is not None else 0)
        since = before.since if before is not None and refusals > 1 else step.now
        until = step.now + growing_pause(refusals, *_PAUSES[kind])
        pool.aside[offering.id] = Aside(kind, until, refusals, story, since)


def _remembered(aside: Aside, now: float) -> int:
    return max(0, aside.refusals - int(max(0.0, now - aside.until) // DECAY))


def forget_refusals(pool: PoolState, now: float) -> None:
    """Drops what has decayed."""
    pool.aside = {key: a for key, a in pool.aside.items() if _remembered(a, now)}


def on_trial(state: State, pool: PoolState) -> set[str]:
    """Offerings that were refused lately and are being asked for: one launch tries, not all."""
    if not pool.aside:
        return set()
    asked = [n for n in state.fleet.nodes({NodePhase.REQUESTED}) if n.pool == pool.spec.name]
    return {o.id for n in asked for o in n.offerings if o.id in pool.aside}


def launch_worked(pool: PoolState, step: Step, node: Node, offering: Offering | None) -> None:
    """The provider gave a machine: account and offering are well.

    Whatever it was to give rather than that one is not to be had; it does not say why.
    """
    for kind in (AUTH, BILLING, REJECTED):
        pool.troubles.pop(kind, None)
    if offering is None:
        return
    ids = [o.id for o in node.offerings]
    preferred = node.offerings[: ids.index(offering.id)] if offering.id in ids else ()
    _set_aside(pool, step, STOCK, preferred, f"not to be had: {offering.id} was given instead")
    pool.aside.pop(offering.id, None)


def list_failed(pool: PoolState, step: Step, what: str, error: str, message: str) -> None:
    """A listing that did not work: nothing is known, so nothing changes but what people are told.

    Without access to the list nothing is bought either: what is bought could not be seen.
    """
    story = f"{what}: {error}: {message}"
    pool.last_error = story
    if error in _ACCOUNT_KINDS:
        kind = _ACCOUNT_KINDS[error]
        _note(pool, step, kind, story, key=f"{kind} {what}")
    elif what != "notices":
        unclear(pool, step, error, story)


def unclear(pool: PoolState, step: Step, error: str, story: str) -> None:
    """A call without a clear answer; several in a row are an outage."""
    pool.unclear += 1
    if pool.unclear < OUTAGE_AFTER:
        return
    kind = THROTTLED if error == "RateLimited" else OUTAGE
    if not pool.in_outage:
        step.because(
            f"pool:{pool.spec.name}",
            f"{kind}: {pool.unclear} calls in a row without a clear answer, last {story}; nothing "
            "is bought or destroyed there until its machines are listed again",
        )
    other = OUTAGE if kind == THROTTLED else THROTTLED
    began = pool.troubles.pop(other, None)
    _note(pool, step, kind, story, since=began.since if began is not None else None)


def listed(pool: PoolState, step: Step, what: str) -> None:
    """A complete list: the provider answers."""
    for kind in (AUTH, BILLING):
        pool.troubles.pop(f"{kind} {what}", None)
    if what != "instances":
        return
    pool.unclear = 0
    pool.last_error = ""
    ended = [t for k in (OUTAGE, THROTTLED) if (t := pool.troubles.pop(k, None)) is not None]
    if ended:
        pool.recovered_at = step.now
        lasted = step.now - min(t.since for t in ended)
        step.because(f"pool:{pool.spec.name}", f"answers again after {lasted:.0f} s")


def boot_failed(pool: PoolState, step: Step, node: Node, why: str) -> None:
    """A machine that did not become a node: the pool pauses, longer each time.

    Machines that were launched before the last failure say nothing new.
    """
    if pool.boot_failures and node.created < pool.boot_failed_at:
        return
    pool.boot_failures += 1
    pool.boot_failed_at = step.now
    told = f"last machine failed: {why}"
    if pool.boot_failures >= BOOT_ATTEMPTS:
        told = f"failed: {pool.boot_failures} machines in a row did not become nodes, {told}"
    _note_boot(pool, step, told)
    if pool.boot_failures >= BOOT_ATTEMPTS:
        pause = pool.troubles[BOOT].until or step.now
        text = f"{told}; the next is tried in {pause - step.now:.0f} s"
        step.because(f"pool:{pool.spec.name}", text)


def boot_trouble_again(pool: PoolState, step: Step, count: int, text: str, since: float) -> None:
    """What an earlier life had seen; the pause begins anew."""
    pool.boot_failures, pool.boot_failed_at = count, step.now
    _note_boot(pool, step, text, since)


def _note_boot(pool: PoolState, step: Step, text: str, since: float | None = None) -> None:
    failed = pool.boot_failures >= BOOT_ATTEMPTS
    count = pool.boot_failures - BOOT_ATTEMPTS + 1 if failed else pool.boot_failures
    pause = growing_pause(count, *(_FAILED_PAUSES if failed else _BOOT_PAUSES))
    until = step.now + pause
    _note(pool, step, BOOT, text, until=until, count=pool.boot_failures, since=since)


def boot_worked(pool: PoolState) -> None:
    """A machine became a node."""
    pool.boot_failures = 0
    pool.troubles.pop(BOOT, None)


def versions_differ(pool: PoolState, step: Step, node: Node, mismatch: str) -> None:
    """Every further machine would bring the same: none is bought before a reload.

    One that was rented before the last reload says nothing about what would come now.
    """
    if node.created < pool.forgiven_at:
        return
    known = pool.troubles.get(VERSIONS)
    _note(pool, step, VERSIONS, mismatch)
    if known is None or known.text != mismatch:
        step.because(f"pool:{pool.spec.name}", f"paused until a reload: {mismatch}")


def give_another_chance(pool: PoolState, now: float) -> None:
    """An operator asked: everything is tried again."""
    pool.forgiven_at = now
    pool.aside, pool.troubles = {}, {}
    pool.unclear = pool.boot_failures = 0


def what_stops_buying(state: State, step: Step, pool: PoolState) -> str:
    """Why nothing is bought in the pool now; empty: it may be tried."""
    for trouble in pool.troubles.values():
        if trouble.until is None or not step.due(trouble.until):
            return trouble.text
    tried = pool.boot_failures or AUTH in pool.troubles or BILLING in pool.troubles
    if tried and any(n.pool == pool.spec.name for n in state.fleet.nodes(NODE_COMING)):
        return f"one machine at a time after trouble ({pool.last_error or 'a failed boot'})"
    return ""


def _worsen(
    pool: PoolState, step: Step, key: str, kind: str, story: str, pauses: tuple[float, float]
) -> None:
    before = pool.troubles.get(key)
    if before is not None and before.until is not None and step.now < before.until:
        return  # asked at the same time as one that was refused already
    count = 1 + (before.count if before is not None else 0)
    _note(
        pool,
        step,
        kind,
        story,
        until=step.now + growing_pause(count, *pauses),
        count=count,
        key=key,
    )


def _note(
    pool: PoolState,
    step: Step,
    kind: str,
    text: str,
    *,
    until: float | None = None,
    count: int = 0,
    key: str = "",
    since: float | None = None,
) -> None:
    key = key or kind
    before = pool.troubles.get(key)
    if before is not None:
        number = count or before.count + 1
        pool.troubles[key] = replace(before, text=text, until=until, count=number)
    else:
        began = step.now if since is None else since
        pool.troubles[key] = Trouble(kind, text, began, count or 1, until)
