"""Types for what operators write, shared by our own settings and by every provider's options.

Each reads the one way of writing and is written back the same way, so that a value means the same
in every section. Relative paths of secrets count from the validation context's `base`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    BeforeValidator,
    PlainSerializer,
    PlainValidator,
    ValidationInfo,
    WithJsonSchema,
)

from elasticd.secret import Secret, parse_secret
from elasticd.units import (
    Money,
    format_duration,
    format_money,
    format_size,
    parse_duration,
    parse_money,
    parse_size,
)

_DURATION_SCHEMA = {
    "type": "string",
    "pattern": r"^([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+$",
    "examples": ["90s", "5m", "1h30m"],
}
_SIZE_SCHEMA = {
    "type": "string",
    "pattern": r"^[0-9]+(\.[0-9]+)?(B|[kKMGTP]B|[KMGTP]iB)$",
    "examples": ["512MiB", "16GiB", "10GB"],
}
_MONEY_SCHEMA = {
    "type": "string",
    "pattern": r"^[0-9]+(\.[0-9]{1,6})? [A-Z]{3}$",
    "examples": ["2.50 USD"],
}
SECRET_SCHEMA = {
    "type": "object",
    "properties": {
        "file": {"type": "string", "description": "A file that holds nothing but the secret."},
        "env": {"type": "string", "description": "An environment variable of elasticd."},
        "credential": {"type": "string", "description": "A credential of the systemd unit."},
    },
    "additionalProperties": False,
    "minProperties": 1,
    "maxProperties": 1,
}


def _positive(value: Any) -> float:
    seconds = _duration(value)
    if seconds <= 0:
        raise ValueError("must be longer than nothing: this bounds a wait; allowed: 1ms to 3650d")
    return seconds


def _duration(value: Any) -> float:
    return parse_duration(value)


def read_secret(value: Any, info: ValidationInfo) -> Secret:
    """A reference, with relative paths from the context's `base`. Raises `ValueError`."""
    base = (info.context or {}).get("base")
    return parse_secret(value, base if isinstance(base, Path) else None)


Duration = Annotated[
    float,
    BeforeValidator(parse_duration),
    PlainSerializer(format_duration),
    WithJsonSchema(_DURATION_SCHEMA),
]
"""Seconds; zero is fine."""

Timeout = Annotated[
    float,
    BeforeValidator(_positive),
    PlainSerializer(format_duration),
    WithJsonSchema(_DURATION_SCHEMA),
]
"""Seconds; more than zero."""

Size = Annotated[
    int, BeforeValidator(parse_size), PlainSerializer(format_size), WithJsonSchema(_SIZE_SCHEMA)
]
"""Bytes."""

Price = Annotated[
    Money,
    PlainValidator(parse_money),
    PlainSerializer(format_money),
    WithJsonSchema(_MONEY_SCHEMA),
]
"""Money; what it pays for (an hour, a day) is told by the key."""

SecretRef = Annotated[
    Secret,
    PlainValidator(read_secret),
    PlainSerializer(Secret.reference),
    WithJsonSchema(SECRET_SCHEMA),
]
"""Where a secret stands; read it with `Secret.read()`."""
