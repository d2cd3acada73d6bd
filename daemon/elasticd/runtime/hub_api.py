"""Asks a model hub what a revision is: its commit, the size of its weights, its `config.json`."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import aiohttp

from elasticd.weights.answers import HubAway, HubRefused, away, refusal, usual_hub
from elasticd.weights.choice import HubFile, NoWeights, weight_files
from elasticd.weights.source import HubSource

CALL_TIMEOUT = 30.0
# The list of a repository with thousands of files has a few MiB; a page of a proxy may never end.
_LONGEST_ANSWER = 32 * 1024 * 1024
_CONFIG = "config.json"


@dataclass(frozen=True, slots=True)
class Hub:
    """Where the hub is, and the token that opens what is not public. The token is secret.

    `endpoint` `None`: the usual one.
    """

    endpoint: str | None
    token: str | None = None


@dataclass(frozen=True, slots=True)
class Revision:
    """What a revision is: its commit, and the bytes of its weights."""

    commit: str
    weight_bytes: int


class HubApi:
    """Calls to one hub, each within `CALL_TIMEOUT` seconds. All raise `HubRefused`, `HubAway`."""

    def __init__(self, session: aiohttp.ClientSession, hub: Hub) -> None:
        self._session = session
        self._endpoint = (hub.endpoint or usual_hub(os.environ)).rstrip("/")
        self._token = hub.token

    async def revision(self, source: HubSource) -> Revision:
        """What the revision of `source` is now."""
        name = quote(source.revision, safe="")
        body = await self._get(source, f"/api/models/{source.repo}/revision/{name}?blobs=true")
        try:
            told = json.loads(body)
            files = [_file(entry) for entry in told["siblings"]]
            return Revision(str(told["sha"]), sum(file.size for file in weight_files(files)))
        except NoWeights as nothing:
            raise HubRefused(f"{source}: {nothing}") from nothing
        except (ValueError, KeyError, TypeError) as odd:
            raise self._not_a_hub(odd) from odd

    async def config(self, source: HubSource) -> Mapping[str, Any] | None:
        """`config.json` at a commit; `None`: the repository has none."""
        path = f"/{source.repo}/resolve/{source.revision}/{_CONFIG}"
        body = await self._get(source, path, or_none=True)
        if body is None:
            return None
        try:
            config = json.loads(body)
        except ValueError as odd:
            raise self._not_a_hub(odd) from odd
        return config if isinstance(config, dict) else None

    async def _get(self, source: HubSource, path: str, *, or_none: bool = False) -> Any:
        """The answer's body; with `or_none`, `None` for a file that is not there."""
        endpoint, token = self._endpoint, self._token
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            async with self._session.get(
                endpoint + path,
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=CALL_TIMEOUT),
            ) as answer:
                code = answer.headers.get("X-Error-Code", "")
                if or_none and answer.status == 404 and code == "EntryNotFound":
                    return None
                if answer.status >= 400:
                    raise refusal(answer.status, code, source, endpoint, has_token=bool(token))
                return await _body(answer)
        except TimeoutError as late:
            silent = TimeoutError(f"no answer within {CALL_TIMEOUT:g} s")
            raise away(silent, endpoint) from late
        except (aiohttp.ClientError, OSError) as broken:
            raise away(broken, endpoint) from broken

    def _not_a_hub(self, odd: Exception) -> HubAway:
        return HubAway(
            f"{self._endpoint} gives answers that are not a hub's ({type(odd).__name__}): is "
            "weights.mirror right, or is a proxy between?"
        )


def _file(entry: Mapping[str, Any]) -> HubFile:
    return HubFile(path=str(entry["rfilename"]), size=int(entry.get("size") or 0))


async def _body(answer: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in answer.content.iter_chunked(1 << 16):
        body += chunk
        if len(body) > _LONGEST_ANSWER:
            raise aiohttp.ClientPayloadError("the answer does not end")
    return bytes(body)
