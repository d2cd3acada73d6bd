"""Asks a model hub what a revision is: its commit, the size of its weights, its `config.json`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import aiohttp

from elasticd.weights.answers import (
    HubRefused,
    away,
    circle,
    not_a_hub,
    refusal,
    usual_hub,
)
from elasticd.weights.choice import HubFile, NoWeights, listed_file, weight_files
from elasticd.weights.foreign import printable, read_json
from elasticd.weights.source import HubSource, is_commit

CALL_TIMEOUT = 30.0
MIB = 1024 * 1024
# The list of a repository with thousands of files has a few MiB; a page of a proxy may never end.
LARGEST_ANSWER = 32 * MIB
LARGEST_CONFIG = 4 * MIB
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
        path = f"/api/models/{source.repo}/revision/{name}?blobs=true"
        body = await self._get(source, path, LARGEST_ANSWER)
        try:
            told = read_json(body or b"")
            files = [_file(entry) for entry in told["siblings"]]
            return Revision(_commit(told["sha"]), sum(file.size for file in weight_files(files)))
        except NoWeights as nothing:
            raise HubRefused(f"{source}: {nothing}") from nothing
        except (ValueError, KeyError, TypeError, AttributeError) as odd:
            raise not_a_hub(odd, self._endpoint) from odd

    async def config(self, source: HubSource) -> Mapping[str, Any] | None:
        """`config.json` at a commit; `None`: the repository has none."""
        path = f"/{source.repo}/resolve/{source.revision}/{_CONFIG}"
        body = await self._get(source, path, LARGEST_CONFIG, or_none=True)
        if body is None:
            return None
        try:
            config = read_json(body)
        except ValueError as odd:
            raise HubRefused(
                f"{source}: its {_CONFIG} cannot be read ({printable(str(odd), 80)}): is "
                "weights.mirror right, or is a proxy between?"
            ) from odd
        return config if isinstance(config, dict) else None

    async def _get(
        self, source: HubSource, path: str, largest: int, *, or_none: bool = False
    ) -> bytes | None:
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
                return await _body(answer, largest)
        except _TooLarge as large:
            what = _CONFIG if path.endswith(_CONFIG) else "its list of files"
            raise HubRefused(
                f"{source}: {endpoint} sends more than {largest // MIB} MiB as {what}, which no "
                "model has; name another repository, or see what weights.mirror is"
            ) from large
        except aiohttp.TooManyRedirects as turning:
            raise circle(endpoint) from turning
        except TimeoutError as late:
            silent = TimeoutError(f"no answer within {CALL_TIMEOUT:g} s")
            raise away(silent, endpoint) from late
        except (aiohttp.ClientError, OSError) as broken:
            raise away(broken, endpoint) from broken


class _TooLarge(Exception):
    """The answer goes on after all that it could mean."""


def _file(entry: Mapping[str, Any]) -> HubFile:
    return listed_file(entry["rfilename"], entry.get("size") or 0)


def _commit(sha: Any) -> str:
    """It becomes part of a URL and of a directory's name, so it is what it has to be."""
    if not (isinstance(sha, str) and is_commit(sha)):
        raise ValueError("the commit is none")
    return sha


async def _body(answer: aiohttp.ClientResponse, largest: int) -> bytes:
    body = bytearray()
    async for chunk in answer.content.iter_chunked(1 << 16):
        body += chunk
        if len(body) > largest:
            raise _TooLarge
    return bytes(body)
