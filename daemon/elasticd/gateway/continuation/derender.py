"""What a replica is asked, and answers, to have ids parsed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from elasticd.gateway.continuation import checked
from elasticd.gateway.continuation.record import ParsedTold
from elasticd.json_fields import Fields
from elasticd.weights.foreign import read_json


class CannotDerender(Exception):
    """The answer is none."""


class Derender:
    """The questions of one answer: prompt and request are written once."""

    def __init__(self, model: str, prompt: Sequence[int], request: bytes) -> None:
        ids = as_json([*prompt])
        self._head = (
            b'{"stream":true,"model":%b,"prompt_tokens":%d,"prompt_token_ids":%b,"chat_request":%b,'
            % (as_json(model), len(prompt), ids, request)
        )

    def body(self, told: ParsedTold, ids: list[int], reason: str | None) -> bytes:
        """What `ids` are after all those that were told; `reason`: they are the last ones."""
        choice = {"index": 0, "token_ids": ids, "finish_reason": reason}
        chunk = {"request_id": told.id, "output_mode": "tokens", "choices": [choice]}
        state = {
            "output_token_ids": told.ids,
            "output_chunk_lens": told.chunks,
            "role_sent": True,
            "tools_streamed": told.tools,
            "last_tool_call_ids": told.tool_ids,
        }
        return self._head + b'"generate_chunk":%b,"stream_state":%b}' % (
            as_json(chunk),
            as_json(state),
        )


def delta_of(data: bytes) -> tuple[dict[str, Any], bool, list[str]]:
    """What they are, whether a tool call has begun, and the ids of those that have. Raises
    `CannotDerender`."""
    try:
        answer = read_json(data)
        (choice,) = answer["chunk"]["choices"]
        state = answer["stream_state"]
        delta = checked.delta_of(choice["delta"])
        ids = list(map(checked.text_of, state["last_tool_call_ids"]))
        tools = Fields(state, "stream_state").flag("tools_streamed")
    except (ValueError, KeyError, TypeError, AttributeError) as bad:
        raise CannotDerender(f"what it parsed is not as expected: {bad!r:.300}") from bad
    return delta, tools, ids


def as_json(value: object) -> bytes:
    """As short as it can be."""
    return json.dumps(value, separators=(",", ":")).encode()
