"""The keys of a pool with `provider: fake`."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from elasticd.option_types import Duration, SecretRef, Timeout


def _http(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"not a web address: {value!r}; for example http://127.0.0.1:8900")
    return value.rstrip("/")


class FakeOptions(BaseModel):
    """Where the fake cloud is, and how far it is trusted."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True
    )

    url: Annotated[str, AfterValidator(_http)]
    """Where `python -m elasticd_providers.fake.site` listens."""
    token: SecretRef | None = None
    """What the cloud knows us by; default: the site's own default token."""
    visibility: Duration = 10.0
    """How long the cloud may take until a new machine is found by its name. After a creation whose
    answer was unclear nothing is created again for so long."""
    client_tokens: bool = False
    """Whether the cloud takes client tokens, with which repeating a creation is safe at once."""
    timeout: Timeout = 20.0
    """How long one call may take."""
    notices_every: Annotated[Timeout, Field(strict=False)] = 2.0
    """How often notices of preemptions are asked for."""
