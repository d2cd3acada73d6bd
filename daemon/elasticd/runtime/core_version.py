"""Which core decides: elasticd's version, and its source itself.

A journal is exact within one core only. Between two releases, and in a checkout that somebody works
on, the version alone would call different cores the same.
"""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

import elasticd
from elasticd import __version__

BESIDE = ("json_fields.py", "provider.py", "routing_table.py")
"""What the core imports from beside it."""


@functools.cache
def core_version() -> str:
    """`VERSION+HASH`, of the files as they are when it is first asked: ask before they change."""
    root = Path(elasticd.__file__).parent
    digest = hashlib.sha256()
    for path in [*sorted((root / "core").glob("*.py")), *(root / name for name in BESIDE)]:
        digest.update(f"{path.name}\0".encode())
        digest.update(path.read_bytes())
    return f"{__version__}+{digest.hexdigest()[:16]}"
