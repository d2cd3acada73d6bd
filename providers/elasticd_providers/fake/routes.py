"""Which call an HTTP request of the vendor's API is.

| request | operation |
|---|---|
| `GET /v1/account` | `whoami` |
| `GET /v1/offers` | `offers` |
| `POST /v1/machines` | `create` |
| `GET /v1/machines?name=NAME` | `find` |
| `GET /v1/machines[?cursor=C]` | `list` |
| `DELETE /v1/machines/ID` | `terminate` |
| `GET /v1/machines/ID/log` | `boot_log` |
| `POST /v1/machines/ID/preempt` | `preempt` |
| `GET /v1/notices` | `notices` |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elasticd_providers.fake.calls import Call
from elasticd_providers.fake.faults import Operation

_PLAIN: dict[tuple[str, str], Operation] = {
    ("GET", "/v1/account"): "whoami",
    ("GET", "/v1/offers"): "offers",
    ("GET", "/v1/notices"): "notices",
}
_OF_MACHINES: dict[tuple[str, str], Operation] = {
    ("DELETE", ""): "terminate",
    ("GET", "log"): "boot_log",
    ("POST", "preempt"): "preempt",
}


def call_of(
    method: str, path: str, query: Mapping[str, str], body: Mapping[str, Any] | None, token: str
) -> Call | None:
    """The call; `None` where this API has no such thing."""
    plain = _PLAIN.get((method, path))
    if plain is not None:
        return Call(plain, token)
    if path == "/v1/machines":
        return _of_all(method, query, body or {}, token)
    machine_id, _, what = path.removeprefix("/v1/machines/").partition("/")
    operation = _OF_MACHINES.get((method, what))
    if not path.startswith("/v1/machines/") or operation is None:
        return None
    return Call(operation, token, machine_id, body or {})


def _of_all(
    method: str, query: Mapping[str, str], body: Mapping[str, Any], token: str
) -> Call | None:
    if method == "POST":
        return Call("create", token, str(body.get("name", "")), body)
    if method != "GET":
        return None
    if "name" in query:
        return Call("find", token, query["name"])
    return Call("list", token, "", query)
