"""The known name that was probably meant."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import SequenceMatcher

_ALIKE = 0.65
_SHOWN = 3


def likeness(text: str, name: str) -> float:
    """0 to 1; 1 also for another way of writing the same: `maxNodes`, `max-nodes`."""
    one, other = _plain(text), _plain(name)
    return 1.0 if one == other else SequenceMatcher(None, one, other).ratio()


def nearest(text: str, known: Iterable[str], alike: float = _ALIKE) -> str | None:
    """The known name that is most like the text; `None` if none is like it."""
    best = max(((likeness(text, name), name) for name in known), default=(0.0, ""))
    return best[1] if best[0] >= alike else None


def choice(text: str, known: Iterable[str]) -> str:
    """`did you mean A? allowed: A, B`; for the end of a message about a wrong name."""
    names = list(known)
    allowed = f"allowed: {', '.join(names)}" if names else "there is none"
    meant = nearest(text, names)
    return f"did you mean {meant}? {allowed}" if meant else allowed


def did_you_mean(text: str, known: Iterable[str]) -> str:
    """`` ; did you mean `a` or `b`? ``, or nothing where no known name is near.

    For names that are too many to list: nodes, models, commands. A part of a name will do, too.
    """
    names = sorted(set(known))
    near = sorted(
        (n for n in names if likeness(text, n) >= _ALIKE), key=lambda n: -likeness(text, n)
    )
    near = near or [name for name in names if text and text in name]
    return f"; did you mean {' or '.join(f'`{n}`' for n in near[:_SHOWN])}?" if near else ""


def _plain(text: str) -> str:
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text)
    return re.sub(r"[\s_.-]+", "_", snake).strip("_").casefold()
