"""Which keys each section of the file knows, read off the models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from elasticd.settings.model import Settings

Keys = Mapping[str, FieldInfo]


def keys_of(section: type[Any] | None) -> Keys:
    """The keys of a section; a provider's options may be of any class, then none is known."""
    if isinstance(section, type) and issubclass(section, BaseModel):
        return section.model_fields
    return {}


def section_in(field: FieldInfo) -> type[BaseModel] | None:
    """The section that stands under a key, itself or as each entry of a list."""
    return next(_sections(field.annotation), None)


def is_list(field: FieldInfo) -> bool:
    """Whether a key holds a list of sections."""
    return get_origin(field.annotation) in (tuple, list)


def takes_null(field: FieldInfo) -> bool:
    """Whether `key:` with nothing after it means something."""
    return type(None) in get_args(field.annotation)


def _sections(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    if get_origin(annotation) is not dict:
        for part in get_args(annotation):
            yield from _sections(part)


@cache
def homes() -> tuple[tuple[str, str], ...]:
    """Every key with the section it belongs to, as people write it: `models[].scaling`."""
    return tuple(_homes(Settings, ""))


def _homes(section: type[BaseModel], path: str) -> Iterator[tuple[str, str]]:
    for name, field in section.model_fields.items():
        yield name, path
        if child := section_in(field):
            under = f"{path}.{name}" if path else name
            yield from _homes(child, f"{under}[]" if is_list(field) else under)
