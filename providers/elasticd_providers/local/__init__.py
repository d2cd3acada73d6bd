"""The local provider: this host plays the cloud.

An Instance is a machine in miniature: a PID namespace of its own with an init of its own (and a
user namespace where we are not root), a node directory, private shared memory. It outlives the
controller; killing it takes everything that ever ran in it. `cloud.json` in the pool's state
directory makes this cloud misbehave while it runs, see `switches`.

| module | owns |
|---|---|
| `options` | the pool's keys in the configuration |
| `switches` | `cloud.json`: out of capacity, slow boot, hang, failing launches |
| `records` | a machine's files: what was launched, how it is doing, what it is told |
| `graves` | what is left of machines that are no more |
| `process` | making a namespace, asking whether it lives, killing it |
| `environment` | what of our environment a machine sees |
| `machine_init` | process 1 of a machine; runs by itself, standard library only |
| `cloud` | the machines of one pool, blocking |
| `threads` | the few threads in which `cloud` blocks |
| `provider` | the contract, asynchronous |
"""

from __future__ import annotations

from elasticd.provider import ProviderPlugin
from elasticd_providers.local.options import LocalOptions
from elasticd_providers.local.provider import LocalProvider, create

__all__ = ["PLUGIN", "LocalOptions", "LocalProvider"]

PLUGIN = ProviderPlugin(
    options=LocalOptions,
    create=create,
    # Listing this host costs nothing, so a lost machine is seen at once.
    defaults={"instances_every": 1.0, "offerings_every": 5.0},
    visibility=lambda _: 0.0,
)
