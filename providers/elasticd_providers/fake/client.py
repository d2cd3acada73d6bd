"""The fake vendor's API as a client sees it: one call in, a JSON object or a contract error out.

Nothing is logged here: the message of an error has what the vendor said, capped and on one line,
and whoever handles the error logs it (or folds the hundredth of its kind).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, Protocol

import aiohttp

from elasticd.provider import (
    AuthFailed,
    BillingBlocked,
    InstanceNotFound,
    NoCapacity,
    PriceTooHigh,
    ProviderError,
    QuotaExceeded,
    RateLimited,
    Rejected,
    Unavailable,
)

_MACHINE = "/v1/machines/"
_SHOWN = 200
"""Characters of a body that a message repeats."""
_LARGEST_ANSWER = 16 * 1024 * 1024

ERRORS: Final[Mapping[str, type[ProviderError]]] = {
    "out_of_stock": NoCapacity,
    "quota_exceeded": QuotaExceeded,
    "price_above_limit": PriceTooHigh,
    "bad_token": AuthFailed,
    "forbidden": AuthFailed,
    "insufficient_balance": BillingBlocked,
    "invalid_request": Rejected,
}
"""By the vendor's code. Any other code is an outcome that we do not know: `Unavailable`."""

_ADVICE: Final[Mapping[type[ProviderError], str]] = {
    AuthFailed: "; check the pool's token",
    BillingBlocked: "; see to the account's balance",
    QuotaExceeded: "; ask the vendor for more, or lower max_nodes",
}


class TokenConflict(ProviderError):
    """The client token was used for another request. Stays within this provider."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer off the wire."""

    status: int
    body: bytes
    headers: Mapping[str, str]


class Wire(Protocol):
    """What carries a call. `send` raises `Unavailable` where no answer came."""

    async def send(
        self, method: str, path: str, query: Mapping[str, str], body: Mapping[str, Any] | None
    ) -> Reply: ...

    async def aclose(self) -> None: ...


class HttpWire:
    """The wire of real use. `token` is secret; `timeout` in seconds for one call."""

    def __init__(self, url: str, token: str, timeout: float) -> None:
        self._url = url
        self._headers = {"Authorization": f"Bearer {token}"}
        self._timeout = timeout
        self._session: aiohttp.ClientSession | None = None

    async def send(
        self, method: str, path: str, query: Mapping[str, str], body: Mapping[str, Any] | None
    ) -> Reply:
        where = f"fake cloud {self._url}: {method} {path}"
        try:
            async with (
                asyncio.timeout(self._timeout),
                self._opened().request(
                    method, f"{self._url}{path}", params=query, json=body, allow_redirects=False
                ) as response,
            ):
                return Reply(response.status, await _read(response), response.headers)
        except TimeoutError as late:
            raise Unavailable(f"{where}: no answer within {self._timeout:g} s") from late
        except (aiohttp.ClientError, OSError, ValueError, RuntimeError) as away:
            raise Unavailable(f"{where}: {away or type(away).__name__}") from away

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            # A connection that is used twice may be one that the other end has just closed: no
            # answer then says nothing about the vendor.
            connector = aiohttp.TCPConnector(force_close=True)
            self._session = aiohttp.ClientSession(
                connector=connector, headers=self._headers, middlewares=(_asked_once,)
            )
        return self._session


class _CutOff(aiohttp.ClientError):
    """The connection ended before the answer came."""


async def _asked_once(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """aiohttp asks again by itself when a connection ends; what is asked again is ours to say."""
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as cut:
        raise _CutOff(f"the connection ended before the answer came ({cut})") from cut


async def _read(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > _LARGEST_ANSWER:
            raise ValueError(f"an answer of more than {_LARGEST_ANSWER} bytes")
    return bytes(body)


class Client:
    """Calls of the vendor's API."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._closed = False

    async def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> tuple[int, dict[str, Any]]:
        """The status (2xx) and the object of a good answer; everything else is raised."""
        where = f"fake cloud: {method} {path}"
        if self._closed:
            raise Unavailable(f"{where}: not asked, since this provider is closed")
        reply = await self._wire.send(method, path, query or {}, body)
        document = _parsed(reply.body)
        if document is None:
            raise _unreadable(where, reply)
        if reply.status >= 300 or "error" in document:
            raise _refused(where, reply, document, of_a_machine=path.startswith(_MACHINE))
        return reply.status, document

    async def aclose(self) -> None:
        """Lets go of connections; from now on every call is `Unavailable`."""
        self._closed = True
        await self._wire.aclose()


def error_of(code: str, message: str, after: float | None = None) -> ProviderError:
    """The contract's error for what the vendor calls `code`."""
    if code == "too_many_requests":
        return RateLimited(message, after)
    if code == "token_conflict":
        return TokenConflict(message)
    kind = ERRORS.get(code, Unavailable)
    return kind(message + _ADVICE.get(kind, ""))


def shown(body: bytes | str) -> str:
    """The beginning of a body on one line, for a message."""
    text = body.decode("utf-8", errors="replace") if isinstance(body, bytes) else body
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return repr(line if len(line) <= _SHOWN else line[: _SHOWN - 1] + "…")


def _parsed(body: bytes) -> dict[str, Any] | None:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _unreadable(where: str, reply: Reply) -> ProviderError:
    """Not this vendor's JSON: perhaps a proxy between, so next to nothing is certain."""
    message = f"{where}: {reply.status}, not the JSON of this API: {shown(reply.body)}"
    if reply.status == 429:
        return RateLimited(message, _retry_after(reply))
    return Unavailable(message)


def _refused(
    where: str, reply: Reply, document: dict[str, Any], *, of_a_machine: bool
) -> ProviderError:
    """ "Not found" is believed only of a machine, in the vendor's own word: a machine that is said
    to be gone is not ended any more, and any proxy can answer 404.
    """
    error = document.get("error")
    code = error.get("code") if isinstance(error, dict) else None
    message = f"{where}: {reply.status} {shown(reply.body)}"
    if not isinstance(code, str):
        return Unavailable(f"{message}, an error without a code")
    if code == "machine_not_found" and of_a_machine and reply.status == 404:
        return InstanceNotFound(message)
    return error_of(code, message, _retry_after(reply))


def _retry_after(reply: Reply) -> float | None:
    """Seconds, written as a number or as a date; `None` where it is neither."""
    text = reply.headers.get("Retry-After", "").strip()
    if text.isascii() and text.replace(".", "", 1).isdigit():
        return float(text)
    try:
        return max(0.0, (parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return None
