"""Texts of the configuration that must have a certain form, with the form told in words."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from elasticd.settings.paths import known_home

_NAME: Final = "[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?"
_NAME_RULE: Final = "lower-case letters a-z, digits and dashes, at most 40, no dash at the ends"
_MODEL: Final = r"[^\W_][\w./:-]{0,127}"
_MODEL_RULE: Final = (
    "letters of any language, digits and . _ / : -, at most 128, a letter or digit first"
)
_ENV: Final = "[A-Za-z_][A-Za-z0-9_]*"
_ENV_RULE: Final = "a variable's name has letters, digits and underscores, no digit first"
_OPTION: Final = "[A-Za-z][A-Za-z0-9-]*"
_OPTION_RULE: Final = (
    "an option as on the command line, with dashes and without the leading ones: max-model-len"
)
_URL: Final = r"https?://[^\s?#]+"
_URL_FORM: Final = "http://HOST[:PORT][/PATH] or https, without blanks"
_METADATA: Final = r"http://[^\s/?#@]+/?"
_HASH: Final = "sha256:[0-9a-f]{64}"


def _formed(pattern: str, rule: str) -> Callable[[str], str]:
    """A validator: the whole text has the form, or the rule is told."""
    form = re.compile(pattern)

    def check(text: str) -> str:
        if not form.fullmatch(text):
            raise ValueError(f"{text[:60]!r} cannot stand here; allowed: {rule}")
        return text

    return check


def _key_hash(value: Any) -> str:
    # Whatever stands here may be the key itself: it is never repeated.
    if isinstance(value, str) and re.fullmatch(_HASH, value):
        return value
    text = value if isinstance(value, str) else ""
    if re.fullmatch(_HASH, text.lower()):
        raise ValueError("the hash has capital letters; write it in small ones: sha256: and a-f")
    if re.fullmatch(_HASH, f"sha256:{text.lower()}"):
        raise ValueError("the hash lacks its kind; write sha256: in front of it")
    raise ValueError(
        "must be the hash of a key, never the key itself; allowed: sha256: and 64 hex digits, as "
        "`elasticd keygen` prints"
    )


def _url(value: str) -> str:
    try:
        parts = urlsplit(value)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        parts, usable = None, False
    if (parts is not None and (parts.username or parts.password)) or (not usable and "@" in value):
        raise ValueError("a URL must not hold a password; use the section's `token`")
    if "?" in value or "#" in value:
        # What follows is often a secret: it is not repeated.
        raise ValueError(
            "a URL here ends before any ? or #, since it is shown and paths are added to it; a "
            "secret stands in the section's `token`"
        )
    if not usable or not value.isprintable() or any(c.isspace() for c in value):
        raise ValueError(f"not a URL: {value[:60]!r}; allowed: {_URL_FORM}")
    return value.rstrip("/")


def _metadata_url(value: str) -> str:
    parts = urlsplit(value)
    if not re.fullmatch(_METADATA, value) or not parts.hostname or parts.port == 0:
        raise ValueError(
            f"not the place of a metadata service: {value[:60]!r}; allowed: http://HOST or "
            "http://HOST:PORT, without a path (the machines ask known paths there, in the clear)"
        )
    return value.rstrip("/")


def _schema(pattern: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": f"^{pattern}$"})


Name = Annotated[str, AfterValidator(_formed(_NAME, _NAME_RULE)), _schema(_NAME)]
"""Of a cluster, a pool, a key: it stands in tags, host names and file names."""

ModelName = Annotated[str, AfterValidator(_formed(_MODEL, _MODEL_RULE))]
"""What clients write as `model`, in the operators' language."""

EnvName = Annotated[str, AfterValidator(_formed(_ENV, _ENV_RULE)), _schema(_ENV)]
OptionName = Annotated[str, AfterValidator(_formed(_OPTION, _OPTION_RULE)), _schema(_OPTION)]
PathText = Annotated[str, AfterValidator(known_home)]
Texts = Annotated[tuple[str, ...], Field(strict=False)]
Url = Annotated[str, AfterValidator(_url), _schema(_URL)]
MetadataUrl = Annotated[str, AfterValidator(_metadata_url), _schema(_METADATA)]

KeyHash = Annotated[str, BeforeValidator(_key_hash), _schema(_HASH)]
"""`sha256:HEX` of a gateway key."""
