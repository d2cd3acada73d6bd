"""An engine's refusals that are not in OpenAI's shape: clients get them as errors all the same.

An engine's application answers in JSON, and that passes unchanged. Its HTTP library (a header too
long, a method unknown) or a proxy before it answers in plain text or a page, which official clients
cannot read. The status stays; of the words one sentence of plain text.
"""

from __future__ import annotations

from multidict import CIMultiDict

from elasticd.gateway.errors import ApiError, bad_gateway, engine_refused, one_sentence
from elasticd.gateway.failures import Head, Opening

_OF_THE_BODY = frozenset(
    ("content-type", "content-encoding", "content-language", "content-range", "etag")
)


def in_shape(opening: Opening) -> Opening:
    """The answer as clients can read it: itself, where it is no refusal, or speaks JSON."""
    head = opening.head
    if head.status < 200:
        return _told(bad_gateway(), CIMultiDict())
    if head.status < 400 or not opening.complete or head.events or _is_json(head):
        return opening
    kept = CIMultiDict(
        (name, value) for name, value in head.headers.items() if name.lower() not in _OF_THE_BODY
    )
    return _told(engine_refused(head.status, _words(opening)), kept)


def _told(error: ApiError, headers: CIMultiDict[str]) -> Opening:
    headers.update(error.headers)
    head = Head(error.status, headers, events=False, json=True)
    return Opening(head, error.body(), complete=True)


def _is_json(head: Head) -> bool:
    kind = head.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    return head.json or kind.endswith("+json")


def _words(opening: Opening) -> str:
    headers = opening.head.headers
    if "Content-Encoding" in headers or not headers.get("Content-Type", "").startswith(
        "text/plain"
    ):
        return ""
    return one_sentence(opening.data.decode("utf-8", "replace"))
