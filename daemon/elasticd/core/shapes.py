"""How many GPUs a replica takes on a machine of some kind."""

from __future__ import annotations

from elasticd.core.fit import gib, gpus_needed, weight_bytes_per_gpu
from elasticd.core.gpu_memory import gpu_memory_mib
from elasticd.core.records import Node
from elasticd.core.specs import ModelSpec
from elasticd.provider import Offering


def gpus_on(spec: ModelSpec, offering: Offering) -> tuple[int | None, str]:
    """GPUs of one replica there; `None` with the reason where it cannot run.

    What the operator has set is believed, unless not even the weights would lie on these GPUs.
    """
    if not spec.gpus_per_replica:
        if spec.shape is None:
            return None, "the model's shape is not known; set gpus_per_replica"
        return gpus_needed(spec.shape, spec.memory, offering)
    if spec.shape is not None and spec.engine.kind == "vllm":
        memory = offering.gpu_memory_mib or gpu_memory_mib(offering.gpu_kind)
        copies = spec.memory.copies  # pipeline stages and data-parallel ranks divide the GPUs, too
        each = weight_bytes_per_gpu(
            spec.shape, spec.memory, max(1, spec.gpus_per_replica // copies)
        )
        if memory is not None and each > memory * 2**20:
            return None, (
                f"{spec.gpus_per_replica} × {offering.gpu_kind} do not hold the weights: "
                f"{gib(each)} on each of {gib(memory * 2**20)}"
            )
    return spec.gpus_per_replica, ""


def gpus_there(node: Node, spec: ModelSpec) -> int | None:
    """GPUs of a replica on this node, of whichever machine it turns out to be; `None`: unfit."""
    if node.pool not in spec.pools:
        return None
    offered = (node.offering,) if node.offering is not None else node.offerings
    needed = 0
    for offering in offered:
        if spec.accelerators and offering.gpu_kind not in spec.accelerators:
            return None
        gpus, _ = gpus_on(spec, offering)
        if gpus is None:
            return None
        needed = max(needed, gpus)
    return needed or spec.gpus_per_replica or None
