"""The fake provider: a rent-a-GPU vendor in a process of its own, with every vice of real ones.

For development and for tests of what a real account would be too slow and too dear for: start
`python -m elasticd_providers.fake.site --state FILE --port N` and point a pool's `url` at it.
Nothing is rented and nothing computes; with `--run-bootstrap` a machine's script at least runs.

| module | owns |
|---|---|
| `catalog`, `machines` | what the cloud rents out; one machine, its states as a function of time |
| `faults` | how it misbehaves: the world, and calls by script |
| `cloud`, `orders` | the cloud itself, pure; the values that it takes and gives |
| `desk`, `routes`, `calls`, `garble`, `handling` | what goes over the wire for a call |
| `site`, `control`, `store`, `bootstraps` | the process: HTTP, the tests' control, state, scripts |
| `options` | the pool's keys in the configuration |
| `client`, `entries`, `identity` | the vendor's wire, read with suspicion |
| `attempts`, `launching` | one machine for one node |
| `provider` | the contract |

The last three rows never import the others: all they know of the vendor is its wire.
"""

from __future__ import annotations

from elasticd.provider import ProviderPlugin
from elasticd_providers.fake.options import FakeOptions
from elasticd_providers.fake.provider import FakeProvider, check_access, create_fake

__all__ = ["PLUGIN", "FakeOptions", "FakeProvider", "create_fake"]

PLUGIN = ProviderPlugin(
    options=FakeOptions,
    create=create_fake,
    # The site is on this machine and may be asked often; a lost machine is seen at once.
    defaults={"instances_every": 1.0, "offerings_every": 5.0},
    check_access=check_access,
    place=("url",),
    visibility=lambda options: float(options.visibility),
)
