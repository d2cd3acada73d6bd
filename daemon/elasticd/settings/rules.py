"""Rules between keys: what each key's own check cannot see. One function for one mistake."""

from __future__ import annotations

from collections.abc import Iterator

from elasticd.core.fit import read_settings
from elasticd.nearest import choice
from elasticd.settings.accelerators import accelerators
from elasticd.settings.budget_rules import budget_rules
from elasticd.settings.document import Place, Problem
from elasticd.settings.draft import Draft, Finding
from elasticd.settings.engine_options import as_text, gpus_of, option_problem
from elasticd.settings.model import AUTO, Model
from elasticd.settings.notices import notice_rules
from elasticd.settings.units import Address


def broken_rules(draft: Draft) -> Iterator[Finding]:
    """Everything that cannot hold together."""
    yield from _at_least_one(draft)
    yield from _names_stand_once(draft)
    yield from _keys_stand_once(draft)
    yield from _pools_exist(draft)
    yield from _addresses_differ(draft)
    yield from _who_may_ask(draft)
    yield from _one_head(draft)
    yield from accelerators(draft)
    yield from budget_rules(draft)
    yield from notice_rules(draft)
    for index, model in enumerate(draft.settings.models):
        yield from _scaling(("models", index, "scaling"), model)
        yield from _engine(("models", index), model)


def _at_least_one(draft: Draft) -> Iterator[Finding]:
    settings = draft.settings
    for section, entries in (("node_pools", settings.node_pools), ("models", settings.models)):
        if not entries:
            yield Finding((section,), "must have at least one entry")


def _names_stand_once(draft: Draft) -> Iterator[Finding]:
    settings = draft.settings
    for section, names in (
        (("node_pools",), [pool.name for pool in settings.node_pools]),
        (("models",), [model.name for model in settings.models]),
        (("gateway", "api_keys"), [key.name for key in settings.gateway.api_keys]),
    ):
        for index, name in enumerate(names):
            if name in names[:index]:
                first: Place = (*section, names.index(name), "name")
                message = f"{name!r} stands twice, first in {Problem(first, '').path}; rename one"
                yield Finding((*section, index, "name"), message, (first,))


def _keys_stand_once(draft: Draft) -> Iterator[Finding]:
    """A request with a key must be somebody's: limits and figures go by the name."""
    at: Place = ("gateway", "api_keys")
    keys = draft.settings.gateway.api_keys
    hashes = [key.hash for key in keys]
    for index, key in enumerate(keys):
        first = hashes.index(key.hash)
        if first != index:
            yield Finding(
                (*at, index, "hash"),
                f"the same key as {keys[first].name}'s, so nobody could tell the two apart; make "
                "another one with `elasticd keygen`, or remove one",
                ((*at, first, "hash"), (*at, index, "name"), (*at, first, "name")),
            )


def _pools_exist(draft: Draft) -> Iterator[Finding]:
    if not draft.pool_names:
        return  # that there are none is told once
    for index, model in enumerate(draft.settings.models):
        for position, pool in enumerate(model.pools):
            place: Place = ("models", index, "pools", position)
            if pool not in draft.pool_names:
                yield Finding(
                    place,
                    f"no pool is called {pool!r}; {choice(pool, draft.pool_names)}",
                )
            elif pool in model.pools[:position]:
                yield Finding(place, f"{pool!r} stands twice; keep one of them")


def _addresses_differ(draft: Draft) -> Iterator[Finding]:
    """Everything that listens on this host has an address of its own."""
    settings = draft.settings
    listens: list[tuple[Place, Address]] = [
        (("gateway", "listen"), settings.gateway.listen),
        (("admin", "listen"), settings.admin.listen),
        (("agent", "listen"), settings.agent.listen),
    ]
    if settings.ray.managed:
        listens.append((("ray", "port"), Address("127.0.0.1", settings.ray.port)))
    for index, (place, address) in enumerate(listens):
        for other, taken in listens[:index]:
            if address.collides(taken):
                yield _taken(draft, (place, address), (other, taken))
                break


def _taken(draft: Draft, one: tuple[Place, Address], other: tuple[Place, Address]) -> Finding:
    """Told at the key that stands in the file: a default has no line to look at."""
    if one[0] not in draft.written and other[0] in draft.written:
        one, other = other, one
    message = f"{one[1]} is already the address of {Problem(other[0], '').path}; take another port"
    return Finding(one[0], message, (other[0],))


def _who_may_ask(draft: Draft) -> Iterator[Finding]:
    listen = draft.settings.gateway.listen
    if not listen.is_loopback and not draft.settings.gateway.api_keys:
        yield Finding(
            ("gateway", "listen"),
            f"{listen} is reachable from outside and there are no API keys: anybody could ask; add "
            f"api_keys (`elasticd keygen` makes one), or listen on 127.0.0.1:{listen.port}",
            (("gateway", "api_keys"),),
        )


def _one_head(draft: Draft) -> Iterator[Finding]:
    ray = draft.settings.ray
    if ray.head is not None and ray.address is not None:
        yield Finding(
            ("ray",), "give either `head: managed` or the `address` of a running head, not both"
        )


def _scaling(at: Place, model: Model) -> Iterator[Finding]:
    scaling = model.scaling
    if scaling.min_replicas > scaling.max_replicas:
        yield Finding(
            at,
            f"min_replicas {scaling.min_replicas} > max_replicas {scaling.max_replicas}; "
            "raise max_replicas or lower min_replicas",
        )
    if scaling.target_ongoing_requests > scaling.max_ongoing_requests:
        yield Finding(
            at,
            f"target_ongoing_requests {scaling.target_ongoing_requests:g} can never be reached "
            f"above max_ongoing_requests {scaling.max_ongoing_requests}; lower the target",
        )
    if scaling.scale_to_zero_after is not None and scaling.min_replicas > 0:
        yield Finding(
            (*at, "scale_to_zero_after"),
            "works with min_replicas: 0 only; set that, or remove this",
            ((*at, "min_replicas"),),
        )


def _engine(at: Place, model: Model) -> Iterator[Finding]:
    options: Place = (*at, "engine_args")
    if model.engine != "vllm":
        if model.engine_args:
            message = "engine_args belong to `engine: vllm`; put options into the command"
            yield Finding(options, message, ((*at, "engine"),))
        if model.gpus_per_replica == AUTO:
            message = "auto is for `engine: vllm`; how many GPUs the command needs is not known"
            yield Finding((*at, "gpus_per_replica"), message, ((*at, "engine"),))
        return
    for name, value in model.engine_args.items():
        if told := option_problem(name, value):
            yield Finding((*options, name), told)
    yield from _memory(options, model)
    said = gpus_of(model.engine_args)
    if said is None or said[0] == model.gpus_per_replica:
        return
    wants = model.gpus_per_replica or "auto"
    yield Finding(
        (*at, "gpus_per_replica"),
        f"{wants} contradicts engine_args ({said[1]}), which take {said[0]} GPUs; write "
        f"gpus_per_replica: {said[0]}, or remove the option: it follows from this key",
        (options,),
    )


def _memory(options: Place, model: Model) -> Iterator[Finding]:
    """Options that the engine would refuse, too: whether it fits could not be told either."""
    texts = {}
    for name, value in model.engine_args.items():
        if not option_problem(name, value):
            texts[name] = as_text(name, value)
    for name, text in texts.items():
        try:
            read_settings([(name, text)])
        except ValueError as bad:
            yield Finding((*options, name), str(bad))
