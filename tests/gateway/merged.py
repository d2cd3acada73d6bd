"""A streamed chat as its client puts it together."""

from __future__ import annotations

import json
from typing import Any

from tests.gateway.harness import events_of


class Merged:
    """Every event is checked for its form; a stream that ended otherwise fails.

    `empty`: events that tell nothing.
    """

    def __init__(self, body: bytes) -> None:
        events = events_of(body)
        assert events[-1] == "[DONE]", events[-1]
        assert events.count("[DONE]") == 1
        documents = [json.loads(e) for e in events[:-1]]
        assert len({(d["id"], d["created"], d["model"], d["object"]) for d in documents}) == 1
        self.reasoning = self.content = ""
        self.calls: list[list[str]] = []
        self.call_ids: list[str] = []
        self.finish: list[tuple[str, Any]] = []
        self.ids: list[int] = []
        self.empty = 0
        self.usage = [d["usage"] for d in documents if d.get("usage")]
        for document in documents:
            for choice in document["choices"]:
                self._add(choice)

    def _add(self, choice: dict[str, Any]) -> None:
        delta = choice["delta"] if "delta" in choice else {"content": choice["text"]}
        self.reasoning += delta.get("reasoning") or ""
        self.content += delta.get("content") or ""
        for call in delta.get("tool_calls") or ():
            if "id" in call:
                assert call["index"] == len(self.calls), "each call begins once"
                self.calls.append([call["function"]["name"], ""])
                self.call_ids.append(call["id"])
            self.calls[call["index"]][1] += call["function"].get("arguments", "")
        if choice["finish_reason"]:
            self.finish.append((choice["finish_reason"], choice.get("stop_reason")))
        self.empty += delta == {} and choice["finish_reason"] is None
        self.ids += choice.get("token_ids") or ()

    @property
    def message(self) -> dict[str, Any]:
        """What does not differ between two answers to one question."""
        calls = [(name, arguments) for name, arguments in self.calls]
        return {"reasoning": self.reasoning, "content": self.content, "calls": calls}
