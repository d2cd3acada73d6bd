"""Names of GPU kinds: providers compare them letter by letter, people write them as they like."""

from __future__ import annotations

import re
from collections.abc import Iterator

from elasticd.nearest import nearest
from elasticd.settings.document import Place
from elasticd.settings.draft import Draft, Finding

KNOWN = (
    *("T4", "V100", "P100", "A2", "A10", "A10G", "A16", "A30", "A40", "A100", "A800"),
    *("L4", "L20", "L40", "L40S", "H20", "H100", "H200", "H800", "GH200", "B200", "B300", "GB200"),
    *("RTX 2080 Ti", "RTX 3060", "RTX 3080", "RTX 3080 Ti", "RTX 3090", "RTX 3090 Ti"),
    *("RTX 4080", "RTX 4090", "RTX 4090 D", "RTX 5070", "RTX 5080", "RTX 5090", "RTX 5090 D"),
    *("RTX A4000", "RTX A5000", "RTX A6000", "RTX 6000 Ada", "RTX PRO 4500", "RTX PRO 6000"),
    *("MI250X", "MI300X", "MI325X", "MI355X", "Gaudi2", "Gaudi3"),
    *("Ascend 910A", "Ascend 910B", "Ascend 910C", "Ascend910B2", "Ascend910B3", "Ascend910B4"),
    *("simulated", "nvidia"),
)
"""Usual names. A pool may list others; a model may then, too."""


def accelerators(draft: Draft) -> Iterator[Finding]:
    """Names that no machine can have, and models whose pools rent nothing they may run on."""
    listed = [name for pool in draft.settings.node_pools for name in pool.accelerators]
    declared = [kind for name in draft.options if (kind := _declared(draft, name))]
    usual = dict.fromkeys([*KNOWN, *declared])
    for index, pool in enumerate(draft.settings.node_pools):
        for position, name in enumerate(pool.accelerators):
            if (meant := _misspelt(name)) and name not in declared:
                place: Place = ("node_pools", index, "accelerators", position)
                yield Finding(place, f"unknown GPU kind {name!r}; did you mean {meant!r}?")
    for index, model in enumerate(draft.settings.models):
        wrong = False
        for position, name in enumerate(model.accelerators):
            if name not in usual and name not in listed:
                wrong = True
                place = ("models", index, "accelerators", position)
                yield Finding(place, _unknown(name, [*listed, *usual]))
        offered = {k for pool in draft.pools_of(model) for k in _offered(draft, pool.name)}
        if model.accelerators and not wrong and offered and not offered & {*model.accelerators}:
            yield Finding(
                ("models", index, "accelerators"),
                f"no pool of this model rents {' or '.join(model.accelerators)}; "
                f"they rent: {', '.join(sorted(offered))}",
                (("models", index, "pools"), *draft.pool_places(model, "accelerators", "name")),
            )


def doubtful_kinds(draft: Draft) -> Iterator[Finding]:
    """Kinds of a pool that nobody has heard of and that are nearly a usual one."""
    for index, pool in enumerate(draft.settings.node_pools):
        for position, name in enumerate(pool.accelerators):
            meant = nearest(name, KNOWN, alike=0.75)
            if meant and name not in KNOWN and name != _declared(draft, pool.name):
                place: Place = ("node_pools", index, "accelerators", position)
                message = f"{name!r} is no usual GPU kind; if it is not a new one, write {meant!r}"
                yield Finding(place, message)


def _offered(draft: Draft, pool_name: str) -> tuple[str, ...]:
    """The kinds a pool rents; empty if it may be any."""
    pool = next(p for p in draft.settings.node_pools if p.name == pool_name)
    return pool.accelerators


def _declared(draft: Draft, pool_name: str) -> str | None:
    kind = getattr(draft.options.get(pool_name), "gpu_kind", None)
    return kind if isinstance(kind, str) else None


def _misspelt(name: str) -> str | None:
    """The usual way to write what is another way to write it; no judgement on new kinds."""
    if name in KNOWN:
        return None
    return next((known for known in KNOWN if _letters(known) == _letters(name)), None)


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.casefold().removeprefix("nvidia").strip())


def _unknown(name: str, known: list[str]) -> str:
    meant = _misspelt(name) or nearest(name, known)
    shown = ", ".join(list(dict.fromkeys(known))[:12])
    return (
        f"unknown GPU kind {name!r}; {f'did you mean {meant!r}? ' if meant else ''}usual: {shown}, "
        "…; any other must stand in `accelerators` of a pool first"
    )
