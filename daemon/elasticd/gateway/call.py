"""A client's request, checked once: everything the gateway needs to route it."""

from __future__ import annotations

import json
import random
import re
from email.message import Message
from typing import Any, NamedTuple

from multidict import MultiMapping

from elasticd.gateway.continuation.terms import NotContinued, Terms, terms_of
from elasticd.gateway.errors import ApiError, bad_request, no_route, wrong_method
from elasticd.gateway.http.request import Request
from elasticd.traffic.tickets import DEFAULT_PRIORITY

_GIVEN_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_SECONDS = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)?")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_POSTED = frozenset(
    f"/v1/{name}" for name in ("chat/completions", "completions", "embeddings", "responses")
)
_FIELD_NAME = re.compile(rb'\bname="?([^";\r\n]*)"?')


class Call(NamedTuple):
    """One request for a replica. `target` is path and query as the client wrote them.

    `engine_id` names the request towards engines: unlike a client's own id it is never used twice.
    `timeout` in seconds, `None`: no limit of the client's. `terms`: on which its stream may be
    continued on another replica, or why it may not.
    """

    request_id: str
    engine_id: str
    method: str
    target: str
    headers: MultiMapping[str]
    body: bytes
    model: str
    streamed: bool
    priority: int
    timeout: float | None
    terms: Terms | NotContinued


def request_id_of(request: Request) -> str:
    """The client's own id if it is a sane one, else a new one."""
    given = request.headers.get("X-Request-Id", "")
    return given if _GIVEN_ID.fullmatch(given) else new_request_id()


def new_request_id() -> str:
    """An id for what came without one. It need not be hard to guess."""
    return f"req-{random.randbytes(12).hex()}"


def call_of(request: Request, body: bytes, request_id: str, max_priority: int) -> Call:
    """The call that a request with this body amounts to. Raises `ApiError` for what is none."""
    priority = min(_priority(request.headers.get("X-Priority")), max_priority)
    timeout = _timeout(request.headers.get("X-Request-Timeout"))
    if not body and request.method not in ("POST", "PUT", "PATCH"):
        raise _nowhere(request)
    fields: dict[str, Any] = {}
    if request.content_type == "multipart/form-data":
        model, streamed = _read_form(body, request.headers["Content-Type"])
    else:
        fields, model, streamed = _read_json(body)
    own = "X-Request-Id" in request.headers
    return Call(
        request_id=request_id,
        engine_id=f"{request_id}-{random.randbytes(4).hex()}" if own else request_id,
        method=request.method,
        target=request.target,
        headers=request.headers,
        body=body,
        model=model,
        streamed=streamed,
        priority=priority,
        timeout=timeout,
        terms=_terms(request.path, fields, body) if streamed else _NOT_STREAMED,
    )


_NOT_STREAMED = NotContinued("it is not streamed")
_OTHER_ENCODING = NotContinued("its body is not UTF-8")

_YES = frozenset(("1", "on", "t", "true", "y", "yes"))
"""What engines take for true in the place of a boolean, in any case of letters."""


def _terms(path: str, fields: dict[str, Any], body: bytes) -> Terms | NotContinued:
    """Of a stream. What goes on has fields of ours behind its own, as UTF-8."""
    if json.detect_encoding(body) not in ("utf-8", "utf-8-sig"):
        return _OTHER_ENCODING
    return terms_of(path, fields)


def _says_yes(value: object) -> bool:
    """Whether `stream` asks the engine for a stream: it is as lenient with its type."""
    if isinstance(value, str):
        return value.lower() in _YES
    return isinstance(value, int | float) and value == 1


def _nowhere(request: Request) -> ApiError:
    path = request.path
    if path in _POSTED:
        return wrong_method(request.method, path, "POST")
    return no_route(request.method, path)


def _json_of(body: bytes) -> Any:
    if body[:1] == b"{" and body[1:2] != b"\0":  # nearly always: what else could be but UTF-8?
        return json.loads(str(body, "utf-8", "surrogatepass"))
    return json.loads(body)


def _read_json(body: bytes) -> tuple[dict[str, Any], str, bool]:
    try:
        fields = _json_of(body) if body else {}
    except (ValueError, RecursionError) as bad:
        raise bad_request(f"The request body is not JSON: {bad}") from bad
    if not isinstance(fields, dict):
        raise bad_request("The request body must be a JSON object")
    model = fields.get("model")
    if not isinstance(model, str) or not model:
        raise _no_model()
    return fields, model, _says_yes(fields.get("stream"))


def _read_form(body: bytes, content_type: str) -> tuple[str, bool]:
    """Finds two fields of a multipart form without touching the rest."""
    header = Message()
    header["Content-Type"] = content_type
    boundary = header.get_param("boundary")
    if not isinstance(boundary, str) or not boundary:
        raise bad_request("The multipart body has no boundary")
    fields: dict[bytes, bytes] = {}
    for part in body.split(b"--" + boundary.encode())[1:]:
        head, _, value = part.partition(b"\r\n\r\n")
        name = _FIELD_NAME.search(head)
        if name and name[1] in (b"model", b"stream"):
            fields[name[1]] = value.removesuffix(b"\r\n")
    model = fields.get(b"model", b"").decode("utf-8", "replace").strip()
    if not model:
        raise _no_model()
    return model, _says_yes(fields.get(b"stream", b"").decode("utf-8", "replace").strip())


def _no_model() -> ApiError:
    return bad_request("The request names no `model`; GET /v1/models lists them", param="model")


def _priority(text: str | None) -> int:
    if text is None:
        return DEFAULT_PRIORITY
    if len(text) == 1 and text in "0123456789":
        return int(text)
    raise bad_request(f"X-Priority is a digit from 0 to 9, not {text[:50]!r}")


def _timeout(text: str | None) -> float | None:
    if text is None:
        return None
    found = _SECONDS.fullmatch(text.strip())
    if found is None or float(found[1]) == 0:
        raise bad_request(
            f'X-Request-Timeout is a duration such as "90" or "90s", not {text[:50]!r}'
        )
    return float(found[1]) * _UNITS[found[2] or "s"]
