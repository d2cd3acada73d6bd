"""What the gateway needs to know to run: one frozen value, made from the settings."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path

from elasticd.errors import UsageError

MIB = 1024 * 1024
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class ApiKey:
    """Who may ask. Only the hash of the key is known here.

    `max_priority` caps `X-Priority`; of `max_ongoing_requests` (`None`: no limit) those that wait
    and those that run count together.
    """

    name: str
    sha256_hex: str
    max_priority: int = 5
    max_ongoing_requests: int | None = None

    def __post_init__(self) -> None:
        if not _SHA256.fullmatch(self.sha256_hex):
            raise UsageError(
                f"gateway.api_keys: the hash of {self.name!r} is not 64 hexadecimal digits; "
                "`elasticd keygen` makes a key and its hash"
            )


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """All times in seconds, all sizes in bytes.

    `port` 0 takes any free port. `idle_timeout` is the longest silence between tokens;
    `stall_after` the shortest one after which a stream may be moved on suspicion;
    `first_byte_timeout` how long a replica may say nothing at all before a request that waits for
    its first byte is moved; `body_timeout` how long a client may take to send its body, and a
    second more for each KiB of it;
    `drain_timeout` what running requests get after SIGTERM; `comment_interval` how long a stream
    waits before it gets SSE comments. An unstreamed answer up to `answer_buffer` is sent only when
    it is complete, so that the loss of its replica stays invisible. After `max_losses` lost
    replicas a request is given up: it may be what breaks them.
    """

    admin_socket: Path
    state_dir: Path
    host: str = "127.0.0.1"
    port: int = 8000
    api_keys: tuple[ApiKey, ...] = ()
    idle_timeout: float = 120.0
    stall_after: float = 5.0
    first_byte_timeout: float = 600.0
    body_timeout: float = 60.0
    drain_timeout: float = 30.0
    comment_interval: float = 10.0
    connect_timeout: float = 5.0
    max_body: int = 64 * MIB
    answer_buffer: int = 32 * MIB
    max_header: int = 16 * 1024
    max_losses: int = 3

    def __post_init__(self) -> None:
        if not self.api_keys and not _is_loopback(self.host):
            raise UsageError(
                f"gateway.listen: {self.host} is reachable from outside and there are no API keys; "
                "add gateway.api_keys (`elasticd keygen` makes them), or listen on 127.0.0.1"
            )
        names = [key.name for key in self.api_keys]
        doubled = next((name for name in names if names.count(name) > 1), None)
        if doubled is not None:
            raise UsageError(f"gateway.api_keys: two keys are named {doubled!r}")

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
