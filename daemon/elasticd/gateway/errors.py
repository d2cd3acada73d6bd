"""What the gateway itself says when it cannot answer: always in OpenAI's error shape.

Every error has its function here, so that one page shows all that clients can ever hear from us.
Messages are for the client's people: no addresses, no paths, nothing of other clients.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from elasticd.traffic.tickets import Expired, Refusal, Rejected

RETRY_AFTER = 5
"""Seconds we advise a client to stay away when there is no room or no replica."""

RETRY_AFTER_FAILED = 60
"""The same for a model that somebody has to mend first."""

_LONGEST = 200
"""Characters of a client's or an engine's words in one of our messages."""

FAILED = "failed: "
"""How the state of a model begins that is not started any more."""


class ApiError(Exception):
    """An answer in OpenAI's error shape.

    Messages quote clients, and a JSON string can hold half a surrogate pair, which no encoding can
    write: such characters are shown escaped, so that a message can be sent and logged.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        message = message.encode("utf-8", "backslashreplace").decode()
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.param = param
        self.headers = {"Content-Type": "application/json", **(headers or {})}

    def body(self) -> bytes:
        """The JSON object, on one line."""
        error = {
            "message": self.message,
            "type": _type_of(self.status),
            "param": self.param,
            "code": self.code,
        }
        return json.dumps({"error": error}).encode()


def _type_of(status: int) -> str:
    if status == 429:
        return "rate_limit_error"
    return "invalid_request_error" if status < 500 else "server_error"


def _cut(text: str) -> str:
    """What a client wrote, as far as it is worth repeating."""
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _later(seconds: int = RETRY_AFTER) -> dict[str, str]:
    return {"Retry-After": str(seconds)}


# -- the request itself ------------------------------------------------------------------------


def bad_request(message: str, param: str | None = None) -> ApiError:
    """The client's request cannot be understood."""
    return ApiError(400, "invalid_request", message, param=param)


def no_http(what: str) -> ApiError:
    """What came is not HTTP as it should be."""
    return bad_request(f"This is not a valid HTTP request: {what}")


def headers_too_large(limit: int) -> ApiError:
    """The request line, a header or their number passes the limit."""
    message = (
        f"The request line or a header is longer than {limit} bytes, or there are too many of them"
    )
    return ApiError(431, "headers_too_large", message)


def no_expectation(text: str) -> ApiError:
    """An `Expect` header other than `100-continue`."""
    return ApiError(417, "unsupported_expectation", f"Expect: {_cut(text)!r} is not supported")


def no_encoding(coding: str, known: Sequence[str]) -> ApiError:
    """A request body packed in a way we cannot unpack."""
    message = f"Content-Encoding {_cut(coding)!r} is not supported; use {', '.join(known)} or none"
    return ApiError(415, "unsupported_encoding", message, headers={"Accept-Encoding": "gzip"})


def body_too_slow(patience: float, seconds: float, came: int) -> ApiError:
    """The client does not send what it announced, or drop by drop."""
    message = (
        f"The request body came too slowly: {came} bytes of it in {seconds:.0f} s. It may take "
        f"{patience:g} s and a second more for each KiB, and never be silent for {patience:g} s"
    )
    return ApiError(408, "body_timeout", message, headers={"Connection": "close"})


def too_large(limit: int) -> ApiError:
    """The request body passes the limit."""
    return ApiError(413, "request_too_large", f"The request body is larger than {limit} bytes")


def not_found(path: str) -> ApiError:
    """No such address here."""
    return ApiError(404, "not_found", f"{_cut(path)}: nothing here; the API is under /v1/")


def no_route(method: str, path: str) -> ApiError:
    """A request without a body names no model, so it belongs to no replica."""
    message = (
        f"{method} {_cut(path)}: nothing here; requests are passed on by the `model` in their "
        "body, and this one has none"
    )
    return ApiError(404, "not_found", message)


def not_plain(path: str) -> ApiError:
    """A path that engines could read as another one."""
    message = f"{_cut(path)}: a path with `.` or `..` as a segment, encoded or not, is not served"
    return ApiError(404, "not_found", message)


def wrong_method(method: str, path: str, allowed: str) -> ApiError:
    """The address exists, but not for this method."""
    message = f"{method} is not possible on {path}; use {allowed}"
    return ApiError(405, "method_not_allowed", message, headers={"Allow": allowed})


def model_not_found(model: str) -> ApiError:
    """A model that is not configured."""
    message = f"The model `{_cut(model)}` does not exist here; GET /v1/models lists those that do"
    return ApiError(404, "model_not_found", message, param="model")


# -- who asks ----------------------------------------------------------------------------------


def no_key() -> ApiError:
    """There are API keys, and the request shows none."""
    message = "This gateway needs an API key: send it as `Authorization: Bearer KEY`"
    return ApiError(401, "missing_api_key", message, headers={"WWW-Authenticate": "Bearer"})


def wrong_key() -> ApiError:
    """The key is none of ours. It is not quoted: it may be right for somebody else."""
    challenge = 'Bearer error="invalid_token"'
    message = "The API key is not known here"
    return ApiError(401, "invalid_api_key", message, headers={"WWW-Authenticate": challenge})


def key_busy(name: str, limit: int) -> ApiError:
    """The key has as many requests under way as it may have."""
    message = f"The API key {name!r} may have {limit} requests under way at once, and has them"
    return ApiError(429, "key_limit", message, headers=_later())


# -- capacity ----------------------------------------------------------------------------------


def no_table() -> ApiError:
    """The gateway has never heard from its controller."""
    message = (
        "The gateway has no routing table yet: the controller has not answered since the first "
        "start. Try again shortly; if it stays so, see `elasticd status`"
    )
    return ApiError(503, "no_routing_table", message, headers=_later())


def turned_away(outcome: Expired | Rejected) -> ApiError:
    """What a request hears that got no slot."""
    model = outcome.ticket.ask.model
    if isinstance(outcome, Expired):
        return _no_capacity(outcome, model)
    match outcome.why:
        case Refusal.NO_TABLE:
            return no_table()
        case Refusal.UNKNOWN_MODEL:
            return model_not_found(model)
        case Refusal.SPEC_GONE:
            return _spec_gone(model)
        case Refusal.QUEUE_FULL:
            message = f"Too many requests wait for `{model}`"
            return ApiError(429, "queue_full", message, headers=_later())


def _no_capacity(outcome: Expired, model: str) -> ApiError:
    state = one_sentence(outcome.state) or "no replica is free"
    if outcome.state.startswith(FAILED):
        message = f"`{model}` cannot be served: {state}"
        return ApiError(503, "model_failed", message, headers=_later(RETRY_AFTER_FAILED))
    if outcome.hopeless:
        return ApiError(503, "no_capacity", f"`{model}`: {state}", headers=_later())
    waited = outcome.ticket.deadline - outcome.ticket.arrived
    message = f"No replica of `{model}` took the request within {waited:.0f} s: {state}"
    return ApiError(503, "no_capacity", message, headers=_later())


def overloaded() -> ApiError:
    """The gateway's own machine has no sockets or memory left; no replica is to blame."""
    message = "The gateway has no connections left; send the request again"
    return ApiError(503, "gateway_overloaded", message, headers=_later())


def stopping() -> ApiError:
    """The gateway is going down."""
    message = "The gateway is stopping; send the request again"
    return ApiError(503, "gateway_stopping", message, headers=_later())


# -- on the way --------------------------------------------------------------------------------


def internal() -> ApiError:
    """A fault of ours; the log says more."""
    return ApiError(500, "internal_error", "The gateway failed on this request; its log says why")


def timed_out(seconds: float) -> ApiError:
    """The client's own limit has passed."""
    message = f"The request did not finish within its X-Request-Timeout of {seconds:g} s"
    return ApiError(504, "request_timeout", message)


def replica_lost(model: str) -> ApiError:
    """The replica went away and the answer cannot be finished. Details are for the log alone."""
    message = f"The replica of `{model}` that was answering was lost; send the request again"
    return ApiError(502, "replica_lost", message)


def _spec_gone(model: str) -> ApiError:
    """A roll-out has removed all that could go on with the answer."""
    message = (
        f"The replica of `{model}` that was answering was lost, and what is served now is another "
        "version, which cannot go on with its answer; send the request again"
    )
    return ApiError(502, "replica_lost", message)


def suspect(model: str, losses: int) -> ApiError:
    """So many replicas were lost under one request that it may be what breaks them."""
    message = (
        f"{losses} replicas of `{model}` were lost while they worked on this request, so it is not "
        "tried again; if it is not the request, send it again"
    )
    return ApiError(502, "replica_lost", message)


def retries_spent(model: str) -> ApiError:
    """So many requests fail again and again that another try would only add to it."""
    message = (
        f"The replica of `{model}` that was answering was lost, not the first one of this request, "
        "and too many requests fail at the moment to try it once more; send it again later"
    )
    return ApiError(502, "replica_lost", message, headers=_later())


def engine_refused(status: int, words: str) -> ApiError:
    """An engine's own refusal that is no JSON: its HTTP library or a proxy before it speaks."""
    said = f": {words}" if words else ""
    return ApiError(status, "engine_error", f"The engine answered with status {status}{said}")


def bad_gateway() -> ApiError:
    """What the engine answered is no answer to a request."""
    message = "The engine switched to another protocol instead of answering"
    return ApiError(502, "bad_gateway", message)


def replica_silent(model: str, seconds: float) -> ApiError:
    """The stream stalled."""
    message = (
        f"The replica of `{model}` sent nothing for {round(seconds, 1):g} s; send the request again"
    )
    return ApiError(504, "idle_timeout", message)


def no_first_byte(model: str, seconds: float) -> ApiError:
    """Two replicas took the request and said nothing."""
    message = f"No replica of `{model}` began to answer within {seconds:.0f} s"
    return ApiError(504, "first_byte_timeout", message)


_PATH = re.compile(r"(?<![\w/:.])(?:/[\w.@%+~-]+){2,}/?")


def one_sentence(text: str) -> str:
    """What clients may see of a reason that can end in an engine's last words.

    The first line of it, short, and without the paths of our machines.
    """
    line = text.strip().partition("\n")[0].strip()
    line = _PATH.sub("…", line)
    end = re.search(r"[.!?]\s", line)
    if end is not None:
        line = line[: end.start() + 1]
    return _cut(line)
