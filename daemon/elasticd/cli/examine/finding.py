"""One line of the doctor's report."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Level(enum.StrEnum):
    """How bad it is."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found about a subject, and what to do (empty: nothing)."""

    level: Level
    subject: str
    text: str
    advice: str = ""


def ok(subject: str, text: str) -> Finding:
    """As it should be."""
    return Finding(Level.OK, subject, text)


def warn(subject: str, text: str, advice: str) -> Finding:
    """It works, and will hurt some day."""
    return Finding(Level.WARN, subject, text, advice)


def fail(subject: str, text: str, advice: str) -> Finding:
    """It does not work so."""
    return Finding(Level.FAIL, subject, text, advice)
