"""Answers that go wrong: refusals by script, proxies that answer instead, and broken bodies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from elasticd_providers.fake.calls import Answer
from elasticd_providers.fake.faults import CallFault
from elasticd_providers.fake.orders import Refusal

_HTML = b"""<html>
<head><title>502 Bad Gateway</title></head>
<body><center><h1>502 Bad Gateway</h1></center><hr><center>nginx</center></body>
</html>
"""

LISTS: Final = ("machines", "offers", "notices")


def _fixed(status: int, code: str, message: str) -> Callable[[CallFault], Refusal]:
    return lambda fault: Refusal(status, code, message, fault.retry_after)


REFUSALS: Final[Mapping[str, Callable[[CallFault], Refusal]]] = {
    "out_of_stock": _fixed(409, "out_of_stock", "sold out"),
    "quota": _fixed(403, "quota_exceeded", "the account may not have more of these"),
    "price": _fixed(409, "price_above_limit", "the market asks more than the limit"),
    "throttled": _fixed(429, "too_many_requests", "slow down"),
    "unauthorized": _fixed(401, "bad_token", "the token is not known"),
    "forbidden": _fixed(403, "forbidden", "the account may not do this"),
    "no_balance": _fixed(402, "insufficient_balance", "the balance is used up"),
    "invalid": _fixed(400, "invalid_request", "this is not understood"),
    "conflict": _fixed(409, "conflict", "another operation is under way"),
    "not_found": _fixed(404, "machine_not_found", "there is no such machine"),
    "server_error": _fixed(500, "internal_error", "something broke"),
    "overloaded": _fixed(503, "overloaded", "too busy"),
}


def not_carried_out(fault: CallFault) -> Answer | None:
    """What a proxy answers although nobody behind it has seen the call."""
    if fault.effect == "html":
        return Answer(502, _HTML, "text/html")
    if fault.effect == "bare_404":
        return Answer(404, _HTML.replace(b"502 Bad Gateway", b"404 Not Found"), "text/html")
    return None


def garbled(answer: Answer, fault: CallFault) -> Answer:
    """What becomes of a whole answer on its way."""
    match fault.effect:
        case "html_after":
            return Answer(502, _HTML, "text/html")
        case "truncated":
            return replace(answer, body=answer.body[: len(answer.body) // 2])
        case "text":
            return Answer(200, b"OK, but please read our notice\nof maintenance", "text/plain")
        case _:
            return answer


def garbled_document(document: dict[str, Any], fault: CallFault) -> dict[str, Any]:
    """What becomes of a document that holds a list."""
    key = next(name for name in LISTS if name in document)
    entries: list[dict[str, Any]] = document[key]
    match fault.effect:
        case "null":
            return document | {key: None}
        case "missing":
            return {name: value for name, value in document.items() if name != key}
        case "empty":
            return document | {key: [], "next": None, "total": 0}
        case "strings":
            return document | {key: [_in_strings(entry) for entry in entries]}
        case "no_address":
            return document | {key: [_without(entry, "address") for entry in entries]}
        case "odd_state":
            return document | {key: [entry | {"state": "hibernating"} for entry in entries]}
        case "duplicates":
            return document | {key: [entry for entry in entries for _ in range(2)]}
        case "bad_entry":
            return document | {key: [_without(entry, "id") for entry in entries[:1]] + entries[1:]}
        case _:
            return document


def _in_strings(entry: dict[str, Any]) -> dict[str, Any]:
    return {
        name: str(value) if type(value) in (int, float) else value for name, value in entry.items()
    }


def _without(entry: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key != name}
