"""What a rented machine hears of its own end, from its cloud's metadata service.

Standard library only. Each module knows one cloud; `hearing` has what they have in common and
`asking` the one way in which all of them ask. No error, no garbage and no silence ever becomes a
notice, nor the end of one: not to know is not "no notice".

| module | asks |
|---|---|
| `ec2` | a token, then three items every few seconds: spot action, rebalance hint, maintenance |
| `gcp` | two values that answer when they change: preempted, maintenance |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from elasticd.node.metadata import ec2, gcp
from elasticd.node.metadata.hearing import Heard, Listener, Notice, SwitchedOff, Unknown

__all__ = ["SOURCES", "Heard", "Listener", "Notice", "SwitchedOff", "Unknown", "listeners"]

SOURCES: Mapping[str, Callable[[str, str], Sequence[Listener]]] = {
    "ec2": ec2.listeners,
    "gcp": gcp.listeners,
}


def listeners(source: str, url: str, node_id: str) -> Sequence[Listener]:
    """Whoever listens on the machine of `node_id`; `url` empty: where that cloud always has it.

    Raises `ValueError` with a sentence for a source or a URL that nobody here can use.
    """
    make = SOURCES.get(source)
    if make is None:
        known = ", ".join(sorted(SOURCES))
        raise ValueError(f"no notices are listened for: unknown source {source!r}; known: {known}")
    return make(url, node_id)
