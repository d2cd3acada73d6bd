"""How an engine is started: its argument list and its environment. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from elasticd.agent_api.messages import ReplicaOrder
from elasticd.node.engine_guard import KEY_VARIABLE

GUARD = "elasticd.node.engine_guard.KeyGuard"
_PARSERS = frozenset({"reasoning-parser", "tool-call-parser"})
# Ray sets this for its own workers' sake; for the engine it comes from the model's settings.
_RAYS_OWN = frozenset({"OMP_NUM_THREADS"})


@dataclass(frozen=True, slots=True)
class EngineCommand:
    """What to start. The key is in `env` and never in `argv`."""

    argv: tuple[str, ...]
    env: Mapping[str, str]


def engine_command(
    order: ReplicaOrder, port: int, gpu_ids: Sequence[str], python: str, environ: Mapping[str, str]
) -> EngineCommand:
    """The command for an order. Raises `ValueError` for an engine kind nobody knows."""
    match order.engine_kind:
        case "vllm":
            argv = _vllm_argv(order, port, python)
        case "command":
            argv = _filled(order, port, gpu_ids)
        case other:
            raise ValueError(f"engine kind {other!r} is not known to this node; upgrade it")
    return EngineCommand(argv, _environment(order, environ))


def _vllm_argv(order: ReplicaOrder, port: int, python: str) -> tuple[str, ...]:
    args = dict(order.engine_args)
    if order.gpus > 1:
        args.setdefault("tensor-parallel-size", str(order.gpus))
    if _PARSERS & args.keys():
        # What the gateway needs to go on with parsed streams elsewhere; behind the guard.
        args.setdefault("enable-scale-out", "true")
    return (
        # By module: the console script asks for a distribution that CPU builds do not have.
        *(python, "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", order.model_path, "--served-model-name", order.model),
        *("--host", order.host, "--port", str(port)),
        *("--middleware", GUARD),
        *(word for name, value in args.items() for word in _option(name, value)),
    )


def _option(name: str, value: str) -> tuple[str, ...]:
    match value:
        case "" | "true" | "True":
            return (f"--{name}",)
        case "false" | "False":
            return (f"--no-{name}",)
        case _:
            return (f"--{name}", value)


def _filled(order: ReplicaOrder, port: int, gpu_ids: Sequence[str]) -> tuple[str, ...]:
    if not order.engine_argv:
        raise ValueError(f"model {order.model}: the engine's command is empty")
    values = {
        "{port}": str(port),
        "{model}": order.model_path or order.model,
        "{gpus}": ",".join(gpu_ids),
    }
    return tuple(_replaced(word, values) for word in order.engine_argv)


def _replaced(word: str, values: Mapping[str, str]) -> str:
    for placeholder, value in values.items():
        word = word.replace(placeholder, value)
    return word


def _environment(order: ReplicaOrder, environ: Mapping[str, str]) -> dict[str, str]:
    """The actor's environment without Ray's and our own words, plus what the engine needs."""
    env = {
        name: value
        for name, value in environ.items()
        if not name.startswith(("RAY_", "ELASTICD_")) and name not in _RAYS_OWN
    }
    if order.engine_kind == "vllm":
        env["VLLM_NO_USAGE_STATS"] = "1"
        if Path(order.model_path).is_dir():
            env["HF_HUB_OFFLINE"] = "1"
    env.update(order.engine_env)
    env[KEY_VARIABLE] = order.key
    env["ELASTICD_REPLICA"] = json.dumps([order.replica_id, order.incarnation])
    return env
