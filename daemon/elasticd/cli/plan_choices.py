"""Where a model could run: what the pools' providers offer, judged, with its price."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from elasticd.cli.plan_subject import Subject
from elasticd.core.fit import Fit, gpu_memory_mib
from elasticd.core.fit_advice import Machine, tried, would_fit
from elasticd.core.gpu_memory import KNOWN_GPUS
from elasticd.provider import Market, Offering, PoolContext, ProviderError
from elasticd.settings.load import Configuration
from elasticd.settings.model import NodePool

_LISTING_TIMEOUT = 20.0
"""Seconds that a provider gets to tell what it offers."""

_KNOWN_COUNT = 8
"""GPUs of the machines that stand for a GPU kind while no pool is known."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One kind of machine. `offering`: `None` for a GPU kind that no pool is known to offer.

    `memory_mib` of one GPU; `None`: not known, and then nothing is claimed. `fits`: by size, on
    how many GPUs one replica starts. `best`: the size that would be taken, or the closest try.
    """

    gpu_kind: str
    gpu_count: int
    memory_mib: int | None
    offering: Offering | None
    fits: tuple[Fit, ...]
    best: Fit | None
    gpus: int | None
    problem: str

    @property
    def holds(self) -> bool:
        """Whether a replica starts there."""
        return bool(self.fits)

    @property
    def replica_price_micros(self) -> int | None:
        """Per hour and replica, on a machine filled with such replicas."""
        if self.offering is None or not self.holds or not self.gpus:
            return None
        return round(self.offering.price_micros / (self.gpu_count // self.gpus))


@dataclass(frozen=True, slots=True)
class Plan:
    """All choices, the best first; `advice`: what would do if none does."""

    choices: tuple[Choice, ...]
    cheapest: tuple[Choice, ...]
    notes: tuple[str, ...]
    advice: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether anything is known to hold the model."""
        return any(choice.holds for choice in self.choices)


def make_plan(subject: Subject) -> Plan:
    """Asks the pools, else looks at every GPU kind that is known, and judges."""
    offerings, notes = asyncio.run(_offered(subject))
    choices = [_choice(subject, o.gpu_kind, o.gpu_count, o.gpu_memory_mib, o) for o in offerings]
    if not choices:
        notes.append(f"looking at every known GPU kind, up to {_KNOWN_COUNT} in one machine")
        choices = [_choice(subject, kind, _KNOWN_COUNT, None, None) for kind in _kinds(subject)]
    choices.sort(key=_order)
    machines = [
        Machine(c.gpu_kind, c.gpu_count, c.memory_mib) for c in choices if c.memory_mib is not None
    ]
    advice: tuple[str, ...] = ()
    if not any(choice.holds for choice in choices):
        advice = would_fit(subject.shape, subject.settings, machines, subject.gpus)
    return Plan(tuple(choices), _cheapest(choices), tuple(notes), advice)


def _choice(
    subject: Subject, kind: str, count: int, memory: int | None, offering: Offering | None
) -> Choice:
    memory = gpu_memory_mib(kind) if memory is None else memory
    fits: tuple[Fit, ...] = ()
    best: Fit | None = None
    problem = f"memory of GPU kind {kind} is not known"
    if memory is not None:
        machine = Machine(kind, count, memory)
        results = tuple(tried(subject.shape, subject.settings, machine, subject.gpus))
        fits = tuple(result for result in results if result.fits)
        best = (fits or results[-1:] or (None,))[0]
        problem = _too_few(subject, count) if best is None else best.reason
    gpus = None if best is None else best.tensor_parallel * subject.settings.copies
    return Choice(kind, count, memory, offering, fits, best, gpus, problem)


def _too_few(subject: Subject, count: int) -> str:
    wanted = subject.gpus or (subject.settings.tensor_parallel or 1) * subject.settings.copies
    return f"a replica takes {wanted} GPUs and a machine has {count}"


def _order(choice: Choice) -> tuple[bool, bool, float, int, str]:
    """What holds it first, then by price of a replica, then by GPUs."""
    price = choice.replica_price_micros
    name = choice.offering.id if choice.offering is not None else choice.gpu_kind
    cost = float("inf") if price is None else float(price)
    return (not choice.holds, not _for_sale(choice), cost, choice.gpus or 99, name)


def _for_sale(choice: Choice) -> bool:
    return choice.offering is not None and choice.offering.available


def _cheapest(choices: Sequence[Choice]) -> tuple[Choice, ...]:
    """For each currency, for amounts of different ones are not compared here."""
    best: dict[str, Choice] = {}
    for choice in choices:
        if choice.holds and choice.offering is not None and choice.offering.available:
            best.setdefault(choice.offering.currency, choice)
    return tuple(best.values())


def _kinds(subject: Subject) -> Iterable[str]:
    return subject.accelerators or tuple(KNOWN_GPUS)


async def _offered(subject: Subject) -> tuple[list[Offering], list[str]]:
    """What the model's pools offer of the kinds it may run on, and what could not be learnt."""
    config, offerings, notes = subject.configuration, list[Offering](), list[str]()
    if config is None:
        return offerings, notes
    pools = [pool for pool in config.settings.node_pools if pool.name in subject.pools]
    with tempfile.TemporaryDirectory(prefix="elasticd-plan-") as folder:
        answers = await asyncio.gather(*(_ask(config, pool, Path(folder)) for pool in pools))
    for pool, answer in zip(pools, answers, strict=True):
        if isinstance(answer, str):
            notes.append(f"pool {pool.name}: {answer}")
            continue
        wanted = [o for o in answer if _wanted(o, pool.accelerators, subject.accelerators)]
        offerings += wanted
        if not wanted:
            notes.append(f"pool {pool.name} offers nothing of the kinds that are allowed")
    return offerings, notes


def _wanted(offering: Offering, *allowed: tuple[str, ...]) -> bool:
    return all(not kinds or offering.gpu_kind in kinds for kinds in allowed)


async def _ask(config: Configuration, pool: NodePool, folder: Path) -> Sequence[Offering] | str:
    """What a pool offers, or why that is not known. The daemon's own state is not touched."""
    own = folder / pool.name
    own.mkdir(mode=0o700)
    context = PoolContext(
        pool=pool.name,
        cluster=config.settings.cluster,
        ledger_id="plan",
        state_dir=own,
        market=Market(pool.market) if pool.market else None,
        accelerators=pool.accelerators,
    )
    try:
        provider = config.plugins[pool.name].create(context, config.options[pool.name])
        try:
            async with asyncio.timeout(_LISTING_TIMEOUT):
                return await provider.offerings()
        finally:
            await provider.aclose()
    except TimeoutError:
        return f"{pool.provider} has not told what it offers within {_LISTING_TIMEOUT:g} s"
    except (ProviderError, OSError) as bad:
        return f"{pool.provider} does not tell what it offers: {bad}"
