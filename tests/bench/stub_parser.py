"""The stub's toy parser: what a token of an answer is depends on its place alone.

As with real parsers some tokens are markers that nobody sees, some text is held back until the next
token, and what comes in one chunk is one delta. Reasoning, then content, then the arguments of one
tool call after the other.
"""

import random

REASONING, CONTENT, CALL = range(1, 7), range(8, 11), 12
"""Places; those between are markers. From `CALL` on: a name, `CALL - 2` tokens of arguments, a
marker, and again."""


def kind(i: int) -> tuple[str, int]:
    """ "mark", "reasoning", "content", "name" or "arguments", and of which call."""
    if i < CALL:
        return ("reasoning" if i in REASONING else "content" if i in CONTENT else "mark"), 0
    call, at = divmod(i - CALL, CALL)
    return ("name" if at == 0 else "mark" if at == CALL - 1 else "arguments"), call


def parse(texts: list[str], start: int, finished: bool, call_ids: list[str]) -> dict | None:
    """The delta of the tokens from `start` on; new calls add their ids. Arguments at every fourth
    place are held back."""
    delta, calls = {}, {}

    def arguments(call, text):
        function = calls.setdefault(call, {"index": call, "function": {}})["function"]
        function["arguments"] = function.get("arguments", "") + text

    for i in range(start, len(texts)):
        what, call = kind(i)
        if i % 4 == 0 and i and kind(i - 1)[0] == "arguments":
            arguments(kind(i - 1)[1], texts[i - 1])
        if what in ("reasoning", "content"):
            delta[what] = delta.get(what, "") + texts[i]
        elif what == "name":
            if call >= len(call_ids):
                call_ids.append(f"call-{random.getrandbits(32):08x}")
            calls[call] = {
                "id": call_ids[call],
                "type": "function",
                "index": call,
                "function": {"name": texts[i]},
            }
        elif what == "arguments" and i % 4 != 3:
            arguments(call, texts[i])
    last = len(texts) - 1
    if finished and last >= 0 and last % 4 == 3 and kind(last)[0] == "arguments":
        arguments(kind(last)[1], texts[last])
    if calls:
        delta["tool_calls"] = [calls[c] for c in sorted(calls)]
    return delta or None


def message(texts: list[str]) -> dict:
    """The whole answer as its client puts it together."""
    whole = parse(texts, 0, True, []) or {}
    calls = [
        (c["function"]["name"], c["function"].get("arguments", ""))
        for c in whole.get("tool_calls", ())
    ]
    return {
        "reasoning": whole.get("reasoning", ""),
        "content": whole.get("content", ""),
        "calls": calls,
    }
