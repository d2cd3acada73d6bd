"""Variables of an engine: text as it stands, or the place of a secret.

What looks like a secret is never shown, whether it stands here or elsewhere: `shown` is what the
ledger, the journal and people get, `secret_values` what an engine gets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import PlainSerializer, PlainValidator, ValidationInfo, WithJsonSchema

from elasticd.option_types import SECRET_SCHEMA, read_secret
from elasticd.secret import Secret

HIDDEN: Final = "(hidden)"
"""Stands for a value that is not shown; it cannot be read back."""

_SECRET = re.compile(
    r"(TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|PASSWORT|CREDENTIALS?|KEYS?)(_?[0-9]+)?"
    r"|.*(SECRET|PASSWORD|PASSWD)(_.*)?(?<!_FILE)(?<!_PATH)(?<!_DIR)"
    r"|.*(TOKEN|_KEYS?|APIKEYS?|PASSPHRASE|CREDENTIALS?)(_?[0-9]+)?",
    re.IGNORECASE,
)


def looks_secret(name: str) -> bool:
    """Whether a variable's name says that its value is not to be shown."""
    counts = name.upper().endswith("TOKENS")  # how many, not which
    return not counts and _SECRET.fullmatch(name) is not None


def _read(value: Any, info: ValidationInfo) -> str | Secret:
    if isinstance(value, Mapping | Secret):
        return read_secret(value, info)
    if value == HIDDEN:
        raise ValueError(
            f"{HIDDEN} is what is shown instead of a value; write its place: {{file: PATH}} or "
            "{env: NAME}"
        )
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)  # YAML reads `1` as a number where an environment means the text `1`
    if isinstance(value, str):
        return value
    raise ValueError(
        "must be text (in quotes, if it looks like true, false or nothing), or the place of a "
        "secret: {file: PATH} or {env: NAME}"
    )


def _write(value: str | Secret) -> Any:
    return value.reference() if isinstance(value, Secret) else value


EnvValue = Annotated[
    str | Secret,
    PlainValidator(_read),
    PlainSerializer(_write),
    WithJsonSchema({"anyOf": [{"type": ["string", "integer"]}, SECRET_SCHEMA]}),
]

Variables = Mapping[str, str | Secret]


def shown(variables: Variables) -> dict[str, str]:
    """Without secrets: the place of one that stands elsewhere, `HIDDEN` for one that does not."""
    return {name: _shown(name, value) for name, value in variables.items()}


def identity(variables: Variables) -> dict[str, str]:
    """What tells one version from another. Of a secret elsewhere that is its place."""
    return {name: str(value) for name, value in variables.items()}


def masked(variables: Variables) -> tuple[str, ...]:
    """The variables whose value stands in the file and is not shown."""
    return tuple(name for name, value in shown(variables).items() if value == HIDDEN)


def secret_values(variables: Variables) -> tuple[tuple[str, str], ...]:
    """What `shown` leaves out. Raises `SecretUnavailable`."""
    found = {}
    for name, value in variables.items():
        if isinstance(value, Secret):
            found[name] = value.read().get_secret_value()
        elif looks_secret(name):
            found[name] = value
    return tuple(sorted(found.items()))


def _shown(name: str, value: str | Secret) -> str:
    if isinstance(value, Secret):
        return str(value)
    return HIDDEN if looks_secret(name) else value
