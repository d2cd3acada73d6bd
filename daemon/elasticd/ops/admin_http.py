"""How the admin API reads requests and answers them."""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

_LONGEST_NAME = 200
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Refused(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def number(
    request: web.Request, name: str, kind: type[Any], default: float = 0, least: float = -math.inf
) -> Any:
    """A number of the query. Raises `Refused`."""
    try:
        value = kind(request.query.get(name, default))
    except (ValueError, OverflowError):
        value = math.nan
    if not math.isfinite(value) or value < least:
        above = "" if least == -math.inf else f" from {least:g}"
        raise Refused(400, f"{name}: a number{above} is expected")
    return value


def is_duration(value: Any) -> bool:
    """Whether it is a number of seconds."""
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    return numeric and math.isfinite(value) and value >= 0


async def body_of(request: web.Request) -> Any:
    """The JSON of a request; nothing sent is `{}`. Raises `Refused`."""
    raw = await request.read()
    if not raw:
        return {}
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as bad:
        raise Refused(400, f"the body is not JSON: {bad}") from bad


async def object_of(request: web.Request) -> dict[str, Any]:
    """The JSON object of a request. Raises `Refused`."""
    body = await body_of(request)
    if not isinstance(body, dict):
        raise Refused(400, "a JSON object is expected")
    return body


def asker(body: Any) -> str:
    """Who asks, as the journal and the reasons will tell it."""
    by = body.get("by") if isinstance(body, dict) else None
    if not isinstance(by, str) or not by.strip():
        return "admin API"
    return " ".join(by.split())[:_LONGEST_NAME]


def json_answer(value: Any, status: int = 200) -> web.Response:
    """Encoded once, and at once to bytes: a status of thousands of nodes is megabytes."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return web.Response(
        body=text.encode("utf-8", "replace"), status=status, content_type="application/json"
    )


@web.middleware
async def clear_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every refusal, the router's too, is JSON with one message."""
    try:
        return await handler(request)
    except Refused as refused:
        return json_answer({"error": str(refused)}, refused.status)
    except web.HTTPException as refused:
        message = f"{request.method} {request.path}: {refused.reason}"
        return json_answer({"error": message}, refused.status)
