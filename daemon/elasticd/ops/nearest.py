"""The known name somebody probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_ALIKE = 0.6
_SHOWN = 3


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean `a` or `b`?`, or nothing where no known name is near."""
    names = sorted(set(known))
    near = difflib.get_close_matches(word, names, n=_SHOWN, cutoff=_ALIKE)
    near = near or [name for name in names if word and word in name][:_SHOWN]
    return f"; did you mean {' or '.join(f'`{name}`' for name in near)}?" if near else ""
