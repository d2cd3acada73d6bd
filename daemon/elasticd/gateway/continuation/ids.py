"""Token ids on the wire: asked for by us, shown only to clients that asked, too.

No event is parsed for it. A quotation mark inside a JSON string has a backslash before it, so what
looks like the name of a field is one.
"""

from __future__ import annotations

import re
from functools import partial

_NAMES = (rb'"token_ids":', rb'"prompt_token_ids":')
_BEFORE = b"|".join(b"(?<=%b%b\\[)" % (name, space) for name in _NAMES for space in (b"", b" "))
_IDS = re.compile(rb"\[(?:%b)[^\]]*\]" % _BEFORE)
"""Looks back from each bracket: brackets are rare, and finding one costs next to nothing."""


def asking_for_ids(body: bytes) -> bytes:
    """A JSON object in UTF-8 with at least one field, and `return_token_ids` behind all of them: of
    two fields with one name the last one counts."""
    return body.rstrip()[:-1] + b',"return_token_ids":true}'


without_ids = partial(_IDS.sub, b"null")
"""Events as the engine writes them where nobody asks for ids. Called for every token."""

_EMPTY, _GOES_ON = b'"delta":{}', b'"finish_reason":null'
_END = b"\n\n"


def without_ids_and_empty(data: bytes) -> bytes:
    """The same where a parser is on the stream: what it holds back comes as an empty delta, but
    only where somebody asks for ids. Whole events, and so is what is left."""
    data = without_ids(data)
    if _EMPTY not in data:
        return data
    events = data.split(_END)
    return _END.join(e for e in events if _EMPTY not in e or _GOES_ON not in e)
