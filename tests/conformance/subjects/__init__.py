"""The subjects there are: a new provider adds its line here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

SUBJECTS: Final[Mapping[str, str]] = {
    "local": "tests.conformance.subjects.local:LocalSubject",
    "fake": "tests.conformance.subjects.fake:FakeSubject",
    "example": "tests.conformance.subjects.example:ExampleSubject",
}
"""Import paths, not classes: a subject whose library is not installed harms no other."""
