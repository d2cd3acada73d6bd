"""The cluster's secret as a start reads it: what is wrong with it is a message for people."""

from __future__ import annotations

from pathlib import Path

from elasticd.cluster_secret import ClusterSecret
from elasticd.errors import UsageError


def open_secret(state_dir: Path) -> ClusterSecret:
    """Made on first use. Raises `UsageError`: without it nobody
    of ours knows another, however often we start."""
    try:
        return ClusterSecret.load_or_create(state_dir)
    except ValueError as damaged:
        raise UsageError(str(damaged)) from damaged
    except OSError as bad:
        raise UsageError(
            f"{bad.filename or state_dir}: cannot be read or made ({bad.strerror}); see that the "
            "daemon's user may read and write there"
        ) from bad
