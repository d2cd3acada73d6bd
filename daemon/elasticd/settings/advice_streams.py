"""Choices by which streams would not go on when their replica is lost, or would move too easily."""

from __future__ import annotations

from collections.abc import Iterator

from elasticd.settings.document import Place
from elasticd.settings.draft import Draft, Finding
from elasticd.settings.model import Model
from elasticd.units import format_duration

_PARSERS = ("tool-call-parser", "reasoning-parser")
_SHORTEST_STALL = 1.0
"""Seconds; engines under load pause for less than that, and machines that swap for more."""


def stream_advice(draft: Draft) -> Iterator[Finding]:
    """For all models, and for the gateway."""
    yield from _stalls(draft)
    yield from _no_room_to_replace(draft)
    for index, model in enumerate(draft.settings.models):
        if model.recovery == "continue":
            yield from _parsed_without_a_way_on(("models", index), model)
            yield from _engine_that_cannot(("models", index), model)


def _stalls(draft: Draft) -> Iterator[Finding]:
    gateway = draft.settings.gateway
    shown, limit = format_duration(gateway.stall_after), format_duration(gateway.idle_timeout)
    at = ("gateway", "stall_after")
    if gateway.stall_after >= gateway.idle_timeout:
        yield Finding(
            at,
            f"{shown} is not below idle_timeout ({limit}): a stream that falls silent ends with an "
            "error there before it is moved; write 5s or so",
        )
    elif gateway.stall_after < _SHORTEST_STALL:
        yield Finding(
            at,
            f"after {shown} of silence a stream may be moved, and each move computes its prompt "
            "again: any pause of a busy engine would do; write 5s or so",
        )


def _no_room_to_replace(draft: Draft) -> Iterator[Finding]:
    for index, pool in enumerate(draft.settings.node_pools):
        said = "rebalance" in pool.model_fields_set and pool.rebalance == "replace_first"
        if said and pool.max_nodes == 1:
            yield Finding(
                ("node_pools", index, "rebalance"),
                "replace_first needs a second machine for a while, and max_nodes is 1: a hint "
                "would change nothing; raise max_nodes, or write ignore or drain",
            )


def _parsed_without_a_way_on(at: Place, model: Model) -> Iterator[Finding]:
    parsers = [name for name in _PARSERS if name in model.engine_args]
    for name in parsers:
        value = model.engine_args[name]
        if not isinstance(value, str) or not value.strip():
            yield Finding(
                (*at, "engine_args", name),
                "has no name; write one of vLLM's parsers, or remove the key",
            )
    off = str(model.engine_args.get("enable-scale-out", True)).lower() == "false"
    if model.engine == "vllm" and parsers and off:
        yield Finding(
            (*at, "engine_args", "enable-scale-out"),
            f"without it chats with a parser ({', '.join(parsers)}) do not go on when their "
            "replica is lost; remove the key, or write recovery: fail",
        )


def _engine_that_cannot(at: Place, model: Model) -> Iterator[Finding]:
    if model.engine != "vllm" and "recovery" in model.model_fields_set:
        yield Finding(
            (*at, "recovery"),
            "continue is for engine: vllm; the streams of a command end when their replica is "
            "lost; remove the key, or write fail",
        )
