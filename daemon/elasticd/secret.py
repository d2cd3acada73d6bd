"""A secret of the configuration: where it stands, never what it is.

A file of the configuration is copied, shown and kept in version control, so it names the place of
a secret and does not hold it. The place is read when the secret is used: a rotated token needs no
reload, and a configuration can be checked where its secrets are not.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import SecretStr

KINDS: Final = ("file", "env", "credential")
HOW: Final = (
    "allowed: {file: PATH}, {env: NAME} or {credential: NAME} (a credential of the systemd unit)"
)
_LIMIT = 64 * 1024


class SecretUnavailable(Exception):
    """A secret cannot be read. The message tells where it was looked for, never what was found."""


@dataclass(frozen=True, slots=True)
class Secret:
    """Where a secret stands. `kind` is one of `KINDS`; `name` a path or a name."""

    kind: str
    name: str

    def reference(self) -> dict[str, str]:
        """As it is written in the configuration."""
        return {self.kind: self.name}

    def __str__(self) -> str:
        return f"{{{self.kind}: {self.name}}}"

    def read(self, environ: Mapping[str, str] | None = None) -> SecretStr:
        """The secret itself, masked wherever it is shown. Raises `SecretUnavailable`."""
        environ = os.environ if environ is None else environ
        if self.kind == "env":
            text = environ.get(self.name)
            if text is None:
                raise SecretUnavailable(f"{self}: the environment has no {self.name}; set it")
        else:
            text = self._read_file(self.path(environ))
        text = text.strip()
        if not text:
            raise SecretUnavailable(f"{self}: it is empty; put the secret there")
        if not text.isprintable():
            raise SecretUnavailable(f"{self}: it holds more than one line of text; keep the first")
        return SecretStr(text)

    def path(self, environ: Mapping[str, str] | None = None) -> Path:
        """The file behind a `file` or a `credential`. Raises `SecretUnavailable`."""
        if self.kind == "file":
            return Path(self.name).expanduser()
        folder = (os.environ if environ is None else environ).get("CREDENTIALS_DIRECTORY")
        if not folder:
            raise SecretUnavailable(
                f"{self}: there are no systemd credentials here; start elasticd as a unit with "
                f"LoadCredential={self.name}:PATH, or name a file"
            )
        return Path(folder) / self.name

    def _read_file(self, path: Path) -> str:
        try:
            with path.open(encoding="utf-8") as file:
                return file.read(_LIMIT)
        except OSError as bad:
            raise SecretUnavailable(f"{self}: {path} cannot be read: {bad.strerror}") from None
        except UnicodeDecodeError:
            raise SecretUnavailable(f"{self}: {path} is not text") from None


def parse_secret(value: Any, base: Path | None = None) -> Secret:
    """A reference as it is written. Relative paths count from `base`.

    Raises `ValueError`, whose text never repeats `value`: it may be the secret itself.
    """
    if isinstance(value, Secret):
        return value
    found = value if isinstance(value, Mapping) else {}
    if value is not found:
        raise ValueError(f"a secret never stands in the configuration itself; {HOW}")
    if len(found) != 1 or next(iter(found)) not in KINDS:
        raise ValueError(f"a secret is one reference; {HOW}")
    ((kind, name),) = found.items()
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"the place of a secret must be text; {HOW}")
    if kind == "file":
        return Secret(kind, _absolute(name, base))
    if kind == "credential" and "/" in name:
        raise ValueError(f"a credential has a name, not a path; {HOW}")
    return Secret(kind, name)


def _absolute(name: str, base: Path | None) -> str:
    try:
        path = Path(name).expanduser()
    except RuntimeError:
        raise ValueError("the home directory it begins with is not known here") from None
    return os.path.normpath(path if base is None else base / path)
