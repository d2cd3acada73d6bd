"""The cluster that runs, against what is installed here: would a machine that starts now get in?"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from elasticd.agent_api.client import AgentClient, AgentError
from elasticd.agent_api.messages import ClusterState
from elasticd.cli.examine.finding import Finding, fail, ok
from elasticd.errors import ElasticdError
from elasticd.node import versions
from elasticd.runtime.own_secret import open_secret

if TYPE_CHECKING:
    from elasticd.settings.load import Configuration

_SUBJECT = "in step"


def examine(config: Configuration) -> Iterator[Finding]:
    """Nothing, where no agent answers: the daemon's own lines speak of that."""
    try:
        if not (config.state_dir / "secrets" / "cluster.key").exists():
            return  # looking must not make one
        token = open_secret(config.state_dir).agent_token
    except (ElasticdError, OSError):
        return  # `start` tells of it
    try:
        state = asyncio.run(_ask(config.settings.agent.listen.url, token))
    except AgentError:
        return
    yield from compare(versions.installed(), state)


def compare(here: Mapping[str, str], state: ClusterState) -> Iterator[Finding]:
    """What is installed here with what the head runs, and the machines that were not let in."""
    differs = versions.differences(here, state.versions)
    if differs:
        yield fail(
            _SUBJECT,
            f"a machine that runs what is installed here would not get in: {differs}",
            "install the head's versions again; or drain, then restart elasticd's head and agent",
        )
    elif state.versions:
        yield ok(_SUBJECT, f"the head that runs has {versions.in_words(state.versions)}, as here")
    for node in state.nodes:
        if node.mismatch:
            text, _, advice = node.mismatch.partition("; ")
            yield fail(_SUBJECT, f"{node.node_id} was not let in: {text}", advice)


async def _ask(url: str, token: str) -> ClusterState:
    async with AgentClient(url, token) as client:
        return await client.state()
