"""The OpenAI shape of what the gateway itself says: errors and the list of models."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from elasticd.routing_table import RoutingTable
from elasticd.traffic.admission import Expired, Refusal, Rejected

RETRY_AFTER = 5
"""Seconds we advise a client to stay away when there is no room or no replica."""


class ApiError(Exception):
    """An answer in OpenAI's error shape. The message is for the client's people.

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
        retry_after: int | None = None,
    ) -> None:
        message = message.encode("utf-8", "backslashreplace").decode()
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.param = param
        self.retry_after = retry_after

    def body(self) -> bytes:
        """The JSON object, on one line."""
        error = {
            "message": self.message,
            "type": _TYPES.get(self.status, "server_error"),
            "param": self.param,
            "code": self.code,
        }
        return json.dumps({"error": error}).encode()

    def headers(self) -> dict[str, str]:
        """What goes with the body."""
        headers = {"Content-Type": "application/json"}
        if self.retry_after is not None:
            headers["Retry-After"] = str(self.retry_after)
        return headers


_TYPES = {
    400: "invalid_request_error",
    404: "invalid_request_error",
    405: "invalid_request_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
}


def bad_request(message: str, param: str | None = None) -> ApiError:
    """The client's request cannot be understood."""
    return ApiError(400, "invalid_request", message, param=param)


def not_found(path: str) -> ApiError:
    """No such address here."""
    return ApiError(404, "not_found", f"{path}: nothing here; the API is under /v1/")


def not_plain(path: str) -> ApiError:
    """A path that engines could read as another one."""
    message = f"{path}: a path with `.` or `..` as a segment, encoded or not, is not served"
    return ApiError(404, "not_found", message)


def model_not_found(model: str) -> ApiError:
    """A model that is not configured."""
    message = f"The model `{model}` does not exist here; GET /v1/models lists those that do"
    return ApiError(404, "model_not_found", message, param="model")


def too_large(limit: int) -> ApiError:
    """The request body passes the limit."""
    return ApiError(413, "request_too_large", f"The request body is larger than {limit} bytes")


def no_table() -> ApiError:
    """The gateway has never heard from its controller."""
    message = (
        "The gateway has no routing table yet: the controller has not answered since the first "
        "start. Try again shortly; if it stays so, see `elasticd status`"
    )
    return ApiError(503, "no_routing_table", message, retry_after=RETRY_AFTER)


def internal() -> ApiError:
    """A fault of ours; the log says more."""
    return ApiError(500, "internal_error", "The gateway failed on this request; its log says why")


def stopping() -> ApiError:
    """The gateway is going down."""
    message = "The gateway is stopping; send the request again"
    return ApiError(503, "gateway_stopping", message, retry_after=RETRY_AFTER)


def timed_out(seconds: float) -> ApiError:
    """The client's own limit has passed."""
    message = f"The request did not finish within its X-Request-Timeout of {seconds:g} s"
    return ApiError(504, "request_timeout", message)


def replica_lost(model: str) -> ApiError:
    """The replica went away and the answer cannot be finished. Details are for the log alone."""
    message = f"The replica of `{model}` that was answering was lost; send the request again"
    return ApiError(502, "replica_lost", message)


def replica_silent(model: str, seconds: float) -> ApiError:
    """The stream stalled."""
    message = f"The replica of `{model}` sent nothing for {seconds:g} s; send the request again"
    return ApiError(504, "idle_timeout", message)


def turned_away(outcome: Expired | Rejected) -> ApiError:
    """What a request hears that got no slot."""
    model = outcome.ticket.ask.model
    if isinstance(outcome, Expired):
        waited = outcome.ticket.deadline - outcome.ticket.arrived
        state = outcome.state or "no replica is free"
        message = f"No replica of `{model}` took the request within {waited:.0f} s: {state}"
        return ApiError(503, "no_capacity", message, retry_after=RETRY_AFTER)
    match outcome.why:
        case Refusal.NO_TABLE:
            return no_table()
        case Refusal.UNKNOWN_MODEL:
            return model_not_found(model)
        case Refusal.QUEUE_FULL:
            message = f"Too many requests wait for `{model}`"
            return ApiError(429, "queue_full", message, retry_after=RETRY_AFTER)


def model_object(model: str, created: int) -> dict[str, Any]:
    """One model as `/v1/models/{model}` shows it."""
    return {"id": model, "object": "model", "created": created, "owned_by": "elasticd"}


def model_list(table: RoutingTable, created: int) -> bytes:
    """Every configured model, also those without a replica at the moment."""
    models: Iterable[str] = (route.model for route in table.models)
    return _json({"object": "list", "data": [model_object(m, created) for m in models]})


def model_answer(model: str, created: int) -> bytes:
    """The body of `/v1/models/{model}`."""
    return _json(model_object(model, created))


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()
