"""Our own provider for the fake cloud."""

from __future__ import annotations

from collections.abc import Mapping

from elasticd.provider import PoolContext, Provider
from elasticd_providers.fake import PLUGIN
from tests.conformance.subject import Trouble
from tests.conformance.subjects.fake_cloud import FakeCloudSubject


class FakeSubject(FakeCloudSubject):
    """Without client tokens, which is the harder way; lags are waited for where there are any."""

    _visibility = "0s"

    async def provoke(self, trouble: Trouble) -> None:
        await super().provoke(trouble)
        if trouble is Trouble.NOT_FOUND_YET:
            self._visibility = "2s"

    async def heal(self) -> None:
        await super().heal()
        self._visibility = "0s"

    def provider(self, *, cluster: str, ledger: str, pool: str) -> Provider:
        context = PoolContext(pool, cluster, ledger, self.state_dir(cluster, ledger, pool))
        told = {"url": self.url, "token": {"file": str(self.token_file)}}
        waits = {"visibility": self._visibility, "notices_every": "50ms"}
        options = PLUGIN.options.model_validate(told | waits)
        return PLUGIN.create(context, options)

    def node_of(self, name: str, tags: Mapping[str, str]) -> str:
        return tags.get("elasticd-node", "")
