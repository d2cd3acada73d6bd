"""How a machine of the fake cloud is known to be ours: by its tags, and by its name.

Tags can be late; the name is there from the first moment and tells the same. A machine whose tags
and name both say nothing of elasticd is somebody else's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, unquote

_PREFIX = "elasticd"


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose a machine is. The same for every launch of the same node."""

    cluster: str
    pool: str
    ledger_id: str
    node_id: str

    @property
    def name(self) -> str:
        """The machine's name: exact, and reversible whatever the parts contain."""
        parts = (_PREFIX, self.cluster, self.pool, self.ledger_id, self.node_id)
        return "/".join(quote(part, safe="") for part in parts)

    @property
    def tags(self) -> dict[str, str]:
        return {
            "elasticd-cluster": self.cluster,
            "elasticd-pool": self.pool,
            "elasticd-ledger": self.ledger_id,
            "elasticd-node": self.node_id,
        }


def identity_of(name: str, tags: Mapping[str, str]) -> Identity | None:
    """Whose the machine is; `None`: nobody's that we know."""
    told = [tags.get(f"elasticd-{part}", "") for part in ("cluster", "pool", "ledger", "node")]
    if all(told):
        return Identity(*told)
    parts = [unquote(part) for part in name.split("/")]
    if len(parts) == 5 and parts[0] == _PREFIX and all(parts):
        return Identity(*parts[1:])
    return None
