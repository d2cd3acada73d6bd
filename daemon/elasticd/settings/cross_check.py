"""Rules between sections of the configuration."""

from __future__ import annotations

from elasticd.settings.document import Place, Problem
from elasticd.settings.model import Settings
from elasticd.settings.units import Address


def cross_check(settings: Settings) -> list[Problem]:
    """Rules between sections."""
    problems: list[Problem] = []
    for section, names in (
        ("node_pools", [pool.name for pool in settings.node_pools]),
        ("models", [model.name for model in settings.models]),
    ):
        if not names:
            problems.append(Problem((section,), "must have at least one entry"))
        for index, name in enumerate(names):
            if name in names[:index]:
                problems.append(Problem((section, index, "name"), f"{name!r} stands twice"))
    pools = [pool.name for pool in settings.node_pools]
    for index, model in enumerate(settings.models):
        for position, pool in enumerate(model.pools):
            if pool not in pools:
                message = f"no pool is called {pool!r}; there are: {', '.join(pools)}"
                problems.append(Problem(("models", index, "pools", position), message))
    problems += _addresses(settings)
    return problems


def _addresses(settings: Settings) -> list[Problem]:
    """Everything that listens on this host has an address of its own."""
    listens: list[tuple[Place, Address]] = [
        (("gateway", "listen"), settings.gateway.listen),
        (("admin", "listen"), settings.admin.listen),
        (("agent", "listen"), settings.agent.listen),
    ]
    if settings.ray.managed:
        listens.append((("ray", "port"), Address("127.0.0.1", settings.ray.port)))
    problems: list[Problem] = []
    for index, (place, address) in enumerate(listens):
        for other, taken in listens[:index]:
            if address.collides(taken):
                message = f"{address} is already the address of {Problem(other, '').path}"
                problems.append(Problem(place, message))
                break
    return problems
