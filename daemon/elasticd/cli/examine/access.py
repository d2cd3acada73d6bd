"""Whether each pool's provider takes our credentials, where it can tell without renting."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any

from elasticd.cli.examine.finding import Finding, fail, ok, warn
from elasticd.provider import AuthFailed, BillingBlocked, ProviderError

if TYPE_CHECKING:
    from elasticd.settings.load import Configuration

_TIMEOUT = 20.0
"""Seconds that a provider may take to say who we are."""


def examine(config: Configuration) -> Iterator[Finding]:
    """One finding a pool."""
    for pool in config.settings.node_pools:
        check = config.plugins[pool.name].check_access
        subject = f"pool {pool.name}"
        if check is None:
            yield ok(
                subject, f"provider {pool.provider} needs no credentials, or cannot check them"
            )
        else:
            yield asyncio.run(_asked(subject, check, config.options[pool.name]))


async def _asked(subject: str, check: Callable[[Any], Awaitable[str]], options: object) -> Finding:
    try:
        async with asyncio.timeout(_TIMEOUT):
            return ok(subject, await check(options))
    except AuthFailed as bad:
        return fail(subject, str(bad), "correct the pool's credentials")
    except BillingBlocked as bad:
        return fail(subject, str(bad), "see to the account's payment")
    except TimeoutError:
        advice = "look at the network, and at the provider's own status page"
        return warn(subject, f"no answer within {_TIMEOUT:g} s", advice)
    except ProviderError as bad:
        return warn(subject, f"{type(bad).__name__}: {bad}", "try again; see the provider's status")
