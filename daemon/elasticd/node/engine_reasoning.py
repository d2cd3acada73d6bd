"""How much of an answer was reasoning, as its engine's own stream would have counted it.

That count is made by the parser while it parses, piece by piece, and neither generating nor
derendering tells it. So all pieces are parsed once more, with vLLM's own replay. The attributes are
vLLM's and may change with its version: then it is not known. Standard library only.
"""

from __future__ import annotations

import json
from collections.abc import MutableMapping
from typing import Any, get_type_hints

REASONING_PATH = "/elasticd/reasoning"


def count_reasoning(scope: MutableMapping[str, Any], question: bytes) -> bytes | None:
    """The JSON answer to a JSON question; `None`: not known.

    The question: a chat `request`, the ids of its `prompt` and of the answer, which came in pieces
    of so many (`lens`), and the `reason` why it ended, if it has.
    """
    try:
        count = _count(scope["app"].state.online_derenderer, json.loads(question))
    except Exception:  # parsers are many, and what each may raise is not known
        return None
    return json.dumps({"reasoning_tokens": count}).encode()


def _count(derenderer: Any, asked: dict[str, Any]) -> int:
    replay = derenderer._derender_chat_stream_parsed
    kinds = get_type_hints(replay)  # the server's own classes
    made: list[Any] = []

    def parser(*args: Any, **more: Any) -> Any:
        made.append(derenderer.parser(*args, **more))
        return made[-1]

    end = {"index": 0, "token_ids": [], "finish_reason": asked["reason"]}
    before = {"output_token_ids": asked["ids"], "output_chunk_lens": asked["lens"]}
    replay(
        parser,
        "",
        kinds["generate_chunk"].model_validate({"choices": [end]}),
        kinds["state"].model_validate(before),
        kinds["chat_request"].model_validate(asked["request"]),
        None,
        asked["prompt"],
    )
    return int(made[0].count_reasoning_tokens(tuple(asked["ids"])))
