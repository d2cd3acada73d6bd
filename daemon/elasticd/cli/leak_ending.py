"""Ends machines of ours that no node stands for, until the provider no longer finds them.

The ledger is read again right before each call: what became a node's meanwhile is left alone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from elasticd.cli.leak_ledger import read_ledger
from elasticd.cli.leak_verdict import Found, Verdict, judge
from elasticd.ops.status_pools import listed
from elasticd.provider import InstanceNotFound, ProviderError
from elasticd.runtime.providers import PoolProvider

PATIENCE = 300.0
"""Seconds for one machine."""

_PAUSES = (1.0, 2.0, 5.0, 10.0)
"""Seconds between two questions whether it has ended; the last one from then on."""


class Ending:
    """Ends what `leaks` found. `others`: everything listed, for machines that share a node."""

    def __init__(
        self,
        providers: Mapping[str, PoolProvider],
        state_dir: Path,
        others: Sequence[Found],
        say: Callable[[str], None],
        patience: float = PATIENCE,
    ) -> None:
        self._providers = providers
        self._state_dir = state_dir
        self._others = others
        self._say = say
        self._patience = patience

    async def end(self, leaks: Sequence[Found]) -> dict[str, str]:
        """By instance id: why it may still be there; empty: the provider says it is gone."""
        left = {one.instance.instance_id for one in leaks}

        async def one(leak: Found) -> tuple[str, str]:
            instance_id = leak.instance.instance_id
            trouble = await self._end(leak)
            left.discard(instance_id)
            told = f"not ended {instance_id}: {trouble}" if trouble else f"ended {instance_id}"
            waiting = f" (waiting for {listed(sorted(left))})" if left else ""
            self._say(f"{told}{waiting}")
            return instance_id, trouble

        return dict(await asyncio.gather(*(one(leak) for leak in leaks)))

    async def _end(self, leak: Found) -> str:
        instance_id = leak.instance.instance_id
        until, asked = time.monotonic() + self._patience, 0
        while True:
            if refusal := await asyncio.to_thread(self._refusal, leak):
                return refusal
            try:
                await self._providers[leak.pool].terminate(instance_id)
                trouble = "the provider is still ending it"
            except InstanceNotFound:
                return ""
            except ProviderError as failed:
                trouble = f"{type(failed).__name__}: {failed}"
            pause = _PAUSES[min(asked, len(_PAUSES) - 1)]
            asked += 1
            if time.monotonic() + pause > until:
                return f"{trouble} after {self._patience:g} s; look at the provider's console"
            await asyncio.sleep(pause)

    def _refusal(self, leak: Found) -> str:
        """Why it must not be ended after all; empty: it is still ours, and no node's."""
        ledger = read_ledger(self._state_dir)
        if ledger.problem:
            told = ledger.problem.splitlines()[0].partition(". ")[0]
            return f"left alone: {told}; `elasticd leaks` says what to do"
        together: dict[str, list[Found]] = {}
        for one in self._others:
            together.setdefault(one.pool, []).append(one)
        instances = {pool: [f.instance for f in group] for pool, group in together.items()}
        for now in judge(instances, ledger, time.time()):
            if now.instance.instance_id == leak.instance.instance_id:
                leaks = now.verdict is Verdict.LEAK
                return "" if leaks else f"left alone: it is {now.verdict.value} by now ({now.why})"
        return "left alone: it is no longer listed"
