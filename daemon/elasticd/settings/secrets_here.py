"""Secrets of the configuration that are not on this host, or that everybody may read."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from elasticd.secret import Secret, SecretUnavailable
from elasticd.settings.document import Place
from elasticd.settings.draft import Draft, Finding


def secrets_here(draft: Draft) -> Iterator[Finding]:
    """Looks where each secret should be. Its content is never read."""
    for place, secret in all_secrets(draft):
        if secret.kind == "file" and (told := _file_problem(secret)):
            yield Finding(place, told)


def all_secrets(draft: Draft) -> Iterator[tuple[Place, Secret]]:
    """Every reference, with its place."""
    yield from _secrets(draft.settings, ())
    for index, pool in enumerate(draft.settings.node_pools):
        yield from _secrets(draft.options.get(pool.name), ("node_pools", index))


def _secrets(value: Any, at: Place) -> Iterator[tuple[Place, Secret]]:
    if isinstance(value, Secret):
        yield at, value
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _secrets(getattr(value, name), (*at, name))
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _secrets(item, (*at, name))
    elif isinstance(value, tuple | list):
        for index, item in enumerate(value):
            yield from _secrets(item, (*at, index))


def _file_problem(secret: Secret) -> str:
    try:
        mode = secret.path().stat().st_mode
    except (SecretUnavailable, OSError) as bad:
        why = getattr(bad, "strerror", None) or bad
        return f"{secret.name}: {why}; put the secret there, in a file that only elasticd reads"
    if mode & (stat.S_IRWXO | stat.S_IWGRP):
        return f"everybody on this host may read {secret.name}; run: chmod 600 {secret.name}"
    return ""
