"""The OpenAI shape of the list of models."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from elasticd.routing_table import RoutingTable


def model_list(table: RoutingTable, created: int) -> bytes:
    """Every configured model, also those without a replica at the moment."""
    models: Iterable[str] = (route.model for route in table.models)
    return _json({"object": "list", "data": [_model(m, created) for m in models]})


def model_answer(model: str, created: int) -> bytes:
    """The body of `/v1/models/{model}`."""
    return _json(_model(model, created))


def _model(model: str, created: int) -> dict[str, Any]:
    return {"id": model, "object": "model", "created": created, "owned_by": "elasticd"}


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()
