"""The controller's side of the agent's wire. Bounded in time, typed errors, no ray."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import aiohttp

from elasticd.agent_api.messages import ClusterState, ReplicaOrder

TIMEOUT = 10.0
STATE_LIMIT = 64 * 1024 * 1024


class AgentError(Exception):
    """Root of what the client raises."""


class AgentUnreachable(AgentError):
    """No usable answer, or "not now": nothing is known of what became of the request."""


class AgentRefused(AgentError):
    """The agent said no, and will say so again to the same request."""


class AgentClient:
    """One agent. Use it as `async with`, or call `aclose`."""

    def __init__(self, url: str, token: str) -> None:
        self._url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"}
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Lets go of connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def state(
        self, incarnation: str = "", version: int = -1, wait: float = 0.0
    ) -> ClusterState:
        """The cluster's state once it is newer than the given one, at latest after `wait` s."""
        query = {"incarnation": incarnation, "version": str(version), "wait": f"{wait:.3f}"}
        answer = await self._call("GET", "/v1/state", params=query, timeout=wait + TIMEOUT)
        try:
            return ClusterState.from_json(answer)
        except ValueError as bad:
            raise AgentUnreachable(f"{self._url}: {bad}") from bad

    async def start(self, order: ReplicaOrder) -> None:
        """Orders a replica; what becomes of it is in the state."""
        await self._call("PUT", f"/v1/replicas/{order.replica_id}", body=order.to_json())

    async def stop(self, replica_id: str, incarnation: int, grace: float) -> None:
        """Orders a replica's end, `grace` seconds for what it still runs."""
        query = {"incarnation": str(incarnation), "grace": f"{grace:.3f}"}
        await self._call("DELETE", f"/v1/replicas/{replica_id}", params=query)

    async def drain_node(self, node_id: str) -> None:
        """Makes Ray drain a node that will certainly go; it cannot be undone."""
        await self._call("POST", f"/v1/nodes/{node_id}/drain", timeout=2 * TIMEOUT)

    async def _call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        timeout: float = TIMEOUT,
    ) -> dict[str, Any]:
        if self._session is None:
            self._session = aiohttp.ClientSession(headers=self._headers)
        limit = aiohttp.ClientTimeout(total=timeout, connect=TIMEOUT)
        url = f"{self._url}{path}"
        try:
            async with self._session.request(
                method, url, params=params, json=body, timeout=limit
            ) as response:
                status = response.status
                answer = await response.json(content_type=None)
        except (aiohttp.ClientError, TimeoutError, ValueError) as away:
            raise AgentUnreachable(f"agent {self._url}: {away or 'no answer in time'}") from away
        return _judge(url, status, answer)


def _judge(url: str, status: int, answer: Any) -> dict[str, Any]:
    if status < 300 and isinstance(answer, dict):
        return answer
    told = answer.get("error") if isinstance(answer, dict) else None
    message = f"agent {url}: {status} {told or 'not an answer of an elasticd agent'}"
    if 400 <= status < 500 and status not in (408, 429):
        raise AgentRefused(message)
    raise AgentUnreachable(message)
