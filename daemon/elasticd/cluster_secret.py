"""One random secret per state directory, and the keys that are made from it.

Everything that must be shared between our own processes is derived, so a restart of any of them
finds the same keys without asking another. The file is 0600 in a 0700 directory.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path


class ClusterSecret:
    """Makes the keys of one cluster. Never printed: `repr` shows nothing of it."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    def __repr__(self) -> str:
        return "ClusterSecret(…)"

    @classmethod
    def load_or_create(cls, state_dir: Path) -> ClusterSecret:
        """Reads `secrets/cluster.key`, made on first use; two starters agree on one."""
        folder = state_dir / "secrets"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = folder / "cluster.key"
        if not path.exists():
            draft = folder / f".cluster.key.{os.getpid()}"
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w") as out:
                out.write(secrets.token_hex(32))
                out.flush()
                os.fsync(out.fileno())
            try:
                os.link(draft, path)
            except FileExistsError:
                pass
            finally:
                draft.unlink()
        text = path.read_text().strip()
        if len(text) != 64:
            raise ValueError(f"{path}: not a cluster key (64 hex digits); restore it from a backup")
        return cls(bytes.fromhex(text))

    def _derive(self, purpose: str) -> str:
        return hmac.new(self._raw, purpose.encode(), hashlib.sha256).hexdigest()

    @property
    def agent_token(self) -> str:
        """What the controller shows to the cluster agent."""
        return self._derive("agent")

    @property
    def ray_token(self) -> str:
        """Ray's own token (`RAY_AUTH_MODE=token`)."""
        return self._derive("ray")

    def join_token(self, node_id: str) -> str:
        """What a fresh machine shows once to the agent to join as this node."""
        return self._derive(f"join:{node_id}")

    def report_token(self, node_id: str) -> str:
        """What a joined node's watcher shows to the agent with each report."""
        return self._derive(f"report:{node_id}")

    def engine_key(self, replica_id: str, incarnation: int) -> str:
        """What opens one engine's guard."""
        return self._derive(f"engine:{replica_id}:{incarnation}")
