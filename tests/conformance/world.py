"""One test's view of a subject: providers over it, requests, waiting, giving everything back."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import pytest

from elasticd.provider import (
    Instance,
    InstanceNotFound,
    LaunchRequest,
    Offering,
    Provider,
    ProviderError,
    Unavailable,
)
from tests.conformance.subject import CannotProvoke, Subject, Trouble

T = TypeVar("T")

POOL, LEDGER = "conformance", "ledger-of-ours"
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.001, 0.05
PATIENCE = 20.0
"""Seconds until what happens "in the end" must have happened."""
JOIN_TOKEN = "join-token-that-nobody-may-see"
BOOTSTRAP = f"# {JOIN_TOKEN}\necho the machine is coming up\nexec sleep 987654\n"


class World:
    """Made anew for each test; node ids and the cluster's name are this test's own."""

    def __init__(self, subject: Subject, cluster: str) -> None:
        self.subject = subject
        self.cluster = cluster
        self._providers: list[Provider] = []
        self._used: set[tuple[str, str]] = set()

    def provider(
        self, *, cluster: str | None = None, ledger: str = LEDGER, pool: str = POOL
    ) -> Provider:
        """A new provider object; closed when the test ends."""
        named = (cluster or self.cluster, pool)
        made = self.subject.provider(cluster=named[0], ledger=ledger, pool=pool)
        self._providers.append(made)
        self._used.add(named)
        return made

    def node(self, name: str = "1") -> str:
        """A node id of this test."""
        return f"{self.cluster}-node-{name}"

    async def request(
        self,
        name: str = "1",
        offerings: Sequence[Offering] | None = None,
        bootstrap: str = BOOTSTRAP,
        *,
        cluster: str | None = None,
        ledger: str = LEDGER,
        pool: str = POOL,
    ) -> LaunchRequest:
        """One machine for the node `name`; of anything that the pool offers, if nothing is said."""
        if offerings is None:
            offerings = await self.offerings(pool)
        named = (self.node(name), cluster or self.cluster, ledger)
        return LaunchRequest(*named, tuple(offerings), bootstrap)

    async def offerings(self, pool: str = POOL) -> list[Offering]:
        """What the pool offers, at least two."""
        provider = self.subject.provider(cluster=self.cluster, ledger=LEDGER, pool=pool)
        try:
            offered = list(await provider.offerings())
        finally:
            await provider.aclose()
        assert len(offered) >= 2, "a subject's pool has at least two offerings"
        return offered

    async def provoke(self, trouble: Trouble) -> None:
        """Skips the test, with the reason, where this vendor cannot be brought to that."""
        await self.or_skip(self.subject.provoke(trouble))

    async def heal(self) -> None:
        """All is well again at the vendor's side."""
        await self.subject.heal()

    async def or_skip(self, asked: Awaitable[T]) -> T:
        """What the subject answers; skips the test where it cannot."""
        try:
            return await asked
        except CannotProvoke as cannot:
            pytest.skip(f"{type(self.subject).__name__}: {cannot}")

    async def machines(self, name: str = "1") -> list[str]:
        """Ids of the machines that the vendor's own books have for the node `name`."""
        node = self.node(name)
        return [m.instance_id for m in await self.subject.machines() if m.node_id == node]

    async def all_machines(self) -> list[str]:
        """Ids of the machines that the vendor's own books have for this test."""
        prefix = f"{self.cluster}-node-"
        return [
            m.instance_id for m in await self.subject.machines() if m.node_id.startswith(prefix)
        ]

    async def until(self, holds: Callable[[], Awaitable[T]], what: str) -> T:
        """The first true answer of `holds`."""
        deadline, pause = time.monotonic() + PATIENCE, _SHORTEST_PAUSE
        while not (answer := await holds()):
            assert time.monotonic() < deadline, f"not within {PATIENCE:g} s: {what}"
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        return answer

    async def until_listed(
        self, provider: Provider, holds: Callable[[list[Instance]], bool], what: str
    ) -> list[Instance]:
        """The first list for which `holds`."""

        async def listed() -> list[list[Instance]]:
            found = list(await provider.instances())
            return [found] if holds(found) else []

        return (await self.until(listed, what))[0]

    async def end(self, provider: Provider, instance_id: str) -> None:
        """Terminates until the provider says that it is gone."""

        async def gone() -> bool:
            try:
                await provider.terminate(instance_id)
            except InstanceNotFound:
                return True
            except Unavailable:
                return False  # the same call later
            return False

        await self.until(gone, f"{instance_id} is gone")

    async def launch(self, provider: Provider, request: LaunchRequest) -> Instance:
        """Asks again while the outcome is not known, as elasticd does."""

        async def known() -> list[Instance]:
            with contextlib.suppress(Unavailable):
                return [await provider.launch(request)]
            return []

        return (await self.until(known, "the outcome of the launch is known"))[0]

    async def refusal(self, provider: Provider, request: LaunchRequest) -> ProviderError:
        """The definite refusal in which a launch ends."""
        return await error_of(self.launch(provider, request))

    async def unanswered(
        self,
        call: Awaitable[object],
        done: Callable[[], Awaitable[bool]],
        *also: type[ProviderError],
    ) -> None:
        """Makes a call whose answer is lost, and gives it up when `done` at the vendor's side.

        It may hang, or say that nobody knows (or `also`); not that nothing came of it.
        """
        task = asyncio.ensure_future(call)

        async def over() -> bool:
            return task.done() or await done()

        await self.until(over, "the call is carried out")
        task.cancel()
        (outcome,) = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(outcome, (asyncio.CancelledError, Unavailable, *also)), outcome

    async def leave(self) -> None:
        """Gives back every machine of this test, by way of the provider, and closes."""
        await self.heal()
        try:
            for provider in self._providers:
                await provider.aclose()
            for cluster, pool in sorted(self._used):
                await self._give_back(
                    self.subject.provider(cluster=cluster, ledger=LEDGER, pool=pool)
                )
        finally:
            left = await self.all_machines()
        assert left == [], "instances() shows everything that there is, so nothing is left"

    async def _give_back(self, provider: Provider) -> None:
        try:
            for instance in await provider.instances():
                await self.end(provider, instance.instance_id)
        finally:
            await provider.aclose()


async def error_of(call: Awaitable[object]) -> ProviderError:
    """What the call raises, which must be an error of the contract."""
    try:
        answer = await call
    except ProviderError as error:
        return error
    raise AssertionError(f"the call was answered: {answer!r}")
