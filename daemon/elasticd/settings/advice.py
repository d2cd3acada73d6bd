"""Choices that are allowed and will hurt: few, each with its place and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from elasticd.settings.accelerators import doubtful_kinds
from elasticd.settings.advice_streams import stream_advice
from elasticd.settings.budget_rules import budget_advice
from elasticd.settings.document import Place
from elasticd.settings.draft import Draft, Finding
from elasticd.settings.engine_env import masked
from elasticd.settings.model import Model
from elasticd.settings.secrets_here import secrets_here
from elasticd.settings.units import Address
from elasticd.units import format_duration

_QUICKEST_START = 30.0
"""Seconds; no engine with weights on a GPU is there sooner."""


def advice(draft: Draft, *, look_on_host: bool) -> Iterator[Finding]:
    """What a colleague would say over the shoulder."""
    yield from _head_that_may_go(draft)
    yield from _fleet_that_never_changes(draft)
    yield from _open_status_page(draft)
    yield from _token_in_the_clear(draft)
    yield from _pools_for_nobody(draft)
    yield from doubtful_kinds(draft)
    yield from budget_advice(draft)
    yield from stream_advice(draft)
    for index, model in enumerate(draft.settings.models):
        yield from _cold_start(draft, ("models", index), model)
        yield from _short_memory(("models", index), model)
        yield from _nothing_waits(("models", index), model)
        yield from _nowhere_to_run(draft, ("models", index), model)
        yield from _inline_secrets(("models", index, "engine_env"), model)
    if look_on_host:
        yield from secrets_here(draft)


def _head_that_may_go(draft: Draft) -> Iterator[Finding]:
    address = draft.settings.ray.address
    spot = [pool.name for pool in draft.settings.node_pools if pool.market == "spot"]
    if address is not None and not address.is_loopback and spot:
        yield Finding(
            ("ray", "address"),
            f"if {address.host} is a machine of a spot pool ({', '.join(spot)}), its loss takes "
            "the head and with it every replica; keep the head on a machine that stays, or write "
            "`head: managed`",
        )


def _fleet_that_never_changes(draft: Draft) -> Iterator[Finding]:
    settings = draft.settings
    fixed = all(m.scaling.min_replicas == m.scaling.max_replicas for m in settings.models)
    replaced = any(pool.market == "spot" for pool in settings.node_pools)
    if fixed and not replaced and sum(pool.max_nodes for pool in settings.node_pools) == 1:
        yield Finding(
            ("node_pools",),
            "one machine at most and as many replicas at all times: Ray gives you nothing here, "
            "`vllm serve` alone does it; raise max_nodes, or max_replicas, if it is to grow",
        )


def _open_status_page(draft: Draft) -> Iterator[Finding]:
    listen: Address = draft.settings.admin.listen
    if not listen.is_loopback:
        yield Finding(
            ("admin", "listen"),
            f"{listen}: status page and metrics ask for no password; listen on "
            f"127.0.0.1:{listen.port}, or let a firewall decide who reaches it",
        )


def _token_in_the_clear(draft: Draft) -> Iterator[Finding]:
    mirror = urlsplit(draft.settings.weights.mirror)
    host = Address(mirror.hostname or "", 1)
    if draft.settings.weights.token and mirror.scheme == "http" and not host.is_loopback:
        yield Finding(
            ("weights", "mirror"), "the token goes there in the clear; write https, or leave it out"
        )


def _pools_for_nobody(draft: Draft) -> Iterator[Finding]:
    used = {pool.name for model in draft.settings.models for pool in draft.pools_of(model)}
    for index, pool in enumerate(draft.settings.node_pools):
        if pool.name not in used and draft.settings.models:
            yield Finding(
                ("node_pools", index, "name"),
                f"no model runs in pool {pool.name}; name it in `pools` of a model, or remove it",
            )


def _cold_start(draft: Draft, at: Place, model: Model) -> Iterator[Finding]:
    held, start = draft.settings.gateway.max_wait, model.start_timeout
    if model.scaling.min_replicas == 0 and start > held:
        yield Finding(
            (*at, "start_timeout"),
            f"with min_replicas: 0 the first request waits for a start that may take "
            f"{format_duration(start)}, and the gateway holds it for {format_duration(held)} only: "
            "clients will see 503; raise gateway.max_wait, or lower this to what a start takes",
        )


def _short_memory(at: Place, model: Model) -> Iterator[Finding]:
    scaling = model.scaling
    if scaling.min_replicas < scaling.max_replicas and scaling.downscale_delay < _QUICKEST_START:
        yield Finding(
            (*at, "scaling", "downscale_delay"),
            f"{format_duration(scaling.downscale_delay)} is shorter than a start-up: a short pause "
            "ends a replica that is wanted again before another one is up; write 5m or so",
        )


def _nothing_waits(at: Place, model: Model) -> Iterator[Finding]:
    if model.queue_limit == 0:
        asleep = " and none ever wakes it from zero" if model.scaling.min_replicas == 0 else ""
        yield Finding(
            (*at, "queue_limit"),
            f"no request may wait: whatever finds no free slot is refused with 429{asleep}; "
            "write 1 or more",
        )


def _inline_secrets(at: Place, model: Model) -> Iterator[Finding]:
    for name in masked(model.engine_env):
        yield Finding(
            (*at, name),
            "looks like a secret that stands in the file itself; write its place, {file: PATH} or "
            "{env: NAME}; for a hub there is weights.token",
        )


def _nowhere_to_run(draft: Draft, at: Place, model: Model) -> Iterator[Finding]:
    pools = draft.pools_of(model)
    if pools and not any(pool.max_nodes for pool in pools):
        names = ", ".join(pool.name for pool in pools)
        yield Finding(
            (*at, "pools") if model.pools else (*at, "name"),
            f"nothing is rented for {model.name}: max_nodes is 0 in {names}; raise it when the "
            "model is to be served",
        )
