"""What the gateway needs to know to run: one frozen value, made from the settings."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path

from elasticd.errors import UsageError

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """All times in seconds, all sizes in bytes.

    `port` 0 takes any free port. `idle_timeout` is the longest silence between tokens;
    `drain_timeout` what running requests get after SIGTERM; `comment_interval` how long a stream
    waits before it gets SSE comments. An unstreamed answer up to `answer_buffer` is sent only when
    it is complete, so that the loss of its replica stays invisible. After `max_losses` lost
    replicas a request is given up: it may be what breaks them.
    """

    admin_socket: Path
    state_dir: Path
    host: str = "127.0.0.1"
    port: int = 8000
    idle_timeout: float = 120.0
    drain_timeout: float = 30.0
    comment_interval: float = 10.0
    connect_timeout: float = 5.0
    max_body: int = 64 * MIB
    answer_buffer: int = 32 * MIB
    max_header: int = 16 * 1024
    max_losses: int = 4

    def __post_init__(self) -> None:
        if not _is_loopback(self.host):
            raise UsageError(
                f"gateway.listen: {self.host} is reachable from outside and there are no API keys; "
                "listen on 127.0.0.1 and put an authenticating proxy in front"
            )

    @property
    def table_file(self) -> Path:
        """Where the last routing table outlives the process."""
        return self.state_dir / "gateway" / "table.json"


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
