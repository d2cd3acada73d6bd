"""Where HTTP meets the gateway: what all its clients' connections share.

What is wrong before there is a request to speak of has the shape and the request id of every other
error.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog
from multidict import CIMultiDict

from elasticd.gateway.call import new_request_id
from elasticd.gateway.errors import ApiError
from elasticd.gateway.http.answer import answer_bytes
from elasticd.gateway.http.request import Request
from elasticd.gateway.http.site import Site
from elasticd.gateway.paths import needs_replica

_log = structlog.get_logger("elasticd.gateway")


def site_of(handle: Callable[[Request], Awaitable[None]], max_header: int) -> Site:
    """The site whose requests are handled so."""
    return Site(handle, _refusal, _lasts, max_header)


def _lasts(request: Request) -> bool:
    return needs_replica(request.method, request.path)


def _refusal(error: ApiError) -> bytes:
    request_id = new_request_id()
    _log.info("request failed", request_id=request_id, code=error.code, error=error.message)
    headers = CIMultiDict({**error.headers, "X-Request-Id": request_id, "Server": "elasticd"})
    return answer_bytes(error.status, headers, error.body())
