"""What `hf:REPO@REVISION` names. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

PREFIX = "hf:"
DEFAULT_REVISION = "main"
_PART = r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}"
_REPO = re.compile(rf"{_PART}(?:/{_PART})?")
_REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/+-]{0,254}")
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class HubSource:
    """A repository of the hub at a revision: a branch, a tag, or a commit of 40 hex digits."""

    repo: str
    revision: str = DEFAULT_REVISION

    @property
    def is_exact(self) -> bool:
        """Whether the revision is a commit, which always means the same bytes."""
        return is_commit(self.revision)

    def at(self, commit: str) -> HubSource:
        """The same repository at one commit."""
        return HubSource(self.repo, commit)

    def __str__(self) -> str:
        return f"{PREFIX}{self.repo}@{self.revision}"


def is_commit(text: str) -> bool:
    """Whether it is a commit: 40 hex digits."""
    return _COMMIT.fullmatch(text) is not None


def parse_source(text: str) -> HubSource:
    """Reads `hf:REPO[@REVISION]`. Raises `ValueError` that says what is allowed.

    What is accepted can stand in a URL and in a path as it is: no way leads up or out.
    """
    if not text.startswith(PREFIX):
        raise ValueError(f"{text!r} is no source of a hub; write hf:OWNER/NAME@REVISION")
    repo, at, revision = text.removeprefix(PREFIX).partition("@")
    revision = revision if at else DEFAULT_REVISION
    if not _REPO.fullmatch(repo) or ".." in repo:
        raise ValueError(f"{text!r}: {repo!r} is no repository; write hf:OWNER/NAME@REVISION")
    if not _REVISION.fullmatch(revision) or ".." in revision:
        raise ValueError(
            f"{text!r}: {revision!r} is no revision; write a branch, a tag, or a commit of 40 hex "
            f"digits, as in hf:{repo}@{DEFAULT_REVISION}"
        )
    return HubSource(repo, revision)
