"""How the admin API reads requests and answers them."""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable
from typing import Any

import structlog
from aiohttp import web
from aiohttp.http_exceptions import LineTooLong

from elasticd.ops.connection import Connection

_LONGEST_NAME = 64
_LARGEST = 2**63 - 1
"""What a database can count."""

LONGEST_TIME = 365 * 86_400.0
"""Seconds: a year. What is meant for longer is meant for ever, and is not asked by a time."""

_log = structlog.get_logger("elasticd.admin")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Refused(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class OnlyObserved(Refused):
    """The controller does nothing any more: whoever waits for it to act waits in vain."""

    def __init__(self, message: str) -> None:
        super().__init__(409, message)


def number(
    request: web.Request, name: str, kind: type[Any], default: float = 0, least: float = -math.inf
) -> Any:
    """A number of the query, written as numbers are. Raises `Refused`."""
    text = str(request.query.get(name, default))
    try:
        value = kind(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= least):
        above = "" if least == -math.inf else f" from {least:g}"
        raise Refused(400, f"{name}: a number{above} is expected")
    if abs(value) > _LARGEST:
        raise Refused(400, f"{name}: at most {_LARGEST} is expected")
    return value


def duration_of(body: dict[str, Any], name: str, *, zero: bool = True) -> float | None:
    """A number of seconds of the body; `None` for null and where it is missing. Raises `Refused`;
    also for 0 if it may not be `zero`."""
    value = body.get(name)
    if value is None:
        return None
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    if not numeric or not (value > 0 or (zero and value == 0)):
        least = "from" if zero else "above"
        raise Refused(400, f"{name}: a number of seconds {least} 0, or null, is expected")
    if value > LONGEST_TIME:
        raise Refused(400, f"{name}: at most {LONGEST_TIME:.0f} seconds (a year) are expected")
    return float(value)


async def body_of(request: web.Request) -> Any:
    """The JSON of a request; nothing sent is `{}`. Raises `Refused`."""
    try:
        raw = await request.read()
    except web.RequestPayloadError as bad:
        raise Refused(400, "the body is not framed as HTTP wants it") from bad
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
    if not isinstance(by, str):
        return "admin API"
    printable = "".join(character for character in by if character.isprintable())
    return " ".join(printable.split())[:_LONGEST_NAME].strip() or "admin API"


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
    except OnlyObserved as refused:
        return json_answer({"error": str(refused), "observe_only": True}, refused.status)
    except Refused as refused:
        return json_answer({"error": str(refused)}, refused.status)
    except web.HTTPException as refused:
        message = f"{request.method} {request.path}: {refused.reason}"
        return json_answer({"error": message}, refused.status)


class AdminConnection(Connection):
    """One client's connection: also what is no request is answered in JSON, and fills no log."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The answer to what is no request, or to a fault that nobody caught."""
        if isinstance(exc, ConnectionError) or request.writer.output_size > 0:
            raise ConnectionError("the client has left, or an answer has begun") from exc
        if status >= 500:
            _log.error("request met a fault", path=request.path, exc_info=exc)
            answer = json_answer({"error": "elasticd failed on this request; see its log"}, status)
        else:
            status, why = _what_is_wrong(exc, message)
            _log.debug("no HTTP request", error=why)
            answer = json_answer({"error": why}, status)
        answer.force_close()
        return answer


def _what_is_wrong(exc: BaseException | None, message: str | None) -> tuple[int, str]:
    """Only the kind of the fault: what was sent is not repeated."""
    first_line = (message or "").partition("\n")[0].partition(":")[0].strip()
    if isinstance(exc, LineTooLong) or first_line.startswith("Too many headers"):
        return 431, "the request line or a header is too long, or there are too many of them"
    return 400, f"this is not a valid HTTP request: {first_line[:100] or 'it cannot be read'}"
