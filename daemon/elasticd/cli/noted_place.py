"""Where a daemon is, noted by itself when it starts.

Commands find a daemon by its configuration. When that is broken or gone, which is when people
look at what runs, they find it by this note: one small file for each configuration, in the
directory that the system keeps for what runs.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from elasticd.cli.whereabouts import Whereabouts

_OF_THE_SYSTEM = Path("/run/elasticd")
"""Made by systemd for the unit; only root can make it, so whoever it belongs to is meant to."""


def note_place(config: Path, place: Whereabouts) -> Path | None:
    """Notes it in the first directory that takes it; `None`: there is no such directory."""
    told = {"config": str(_name(config)), "socket": str(place.socket)}
    text = json.dumps({**told, "state_dir": str(place.state_dir)}, ensure_ascii=False)
    for folder in _for_writing():
        path = folder / _file_name(config)
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, exist_ok=True)
            if folder != _OF_THE_SYSTEM and not _is_ours(folder):
                continue
            _forget_vanished(folder)
            draft = path.with_suffix(f".{os.getpid()}")
            draft.write_text(text, encoding="utf-8", errors="surrogateescape")
            draft.replace(path)
            return path
    return None


def noted_place(config: Path) -> Whereabouts | None:
    """What the latest daemon of this configuration noted; `None`: nothing that can be read."""
    for folder in _for_reading():
        found = _read(folder / _file_name(config))
        if found is not None and found["config"] == str(_name(config)):
            return Whereabouts(Path(found["socket"]), Path(found["state_dir"]))
    return None


def _for_writing() -> Iterator[Path]:
    given = os.environ.get("RUNTIME_DIRECTORY", "").split(":")[0]
    if given:
        yield Path(given)
    yield from _of_the_user()


def _for_reading() -> Iterator[Path]:
    yield _OF_THE_SYSTEM
    yield from (folder for folder in _of_the_user() if _is_ours(folder))


def _of_the_user() -> Iterator[Path]:
    uid = os.getuid()
    if session := os.environ.get("XDG_RUNTIME_DIR"):
        yield Path(session) / "elasticd"
    yield Path(f"/run/user/{uid}/elasticd")
    yield Path(tempfile.gettempdir()) / f"elasticd-places-{uid}"


def _is_ours(folder: Path) -> bool:
    """Anyone may have made it in a place where everyone may write."""
    try:
        return folder.lstat().st_uid == os.getuid() and folder.is_dir() and not folder.is_symlink()
    except OSError:
        return False


def _forget_vanished(folder: Path) -> None:
    """Notes of state directories that are no more."""
    for path in folder.glob("place-*.json"):
        found = _read(path)
        if found is None or not Path(found["state_dir"]).exists():
            path.unlink(missing_ok=True)


def _read(path: Path) -> dict[str, str] | None:
    try:
        told = json.loads(path.read_text(encoding="utf-8", errors="surrogateescape"))
        return {key: str(told[key]) for key in ("config", "socket", "state_dir")}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _name(config: Path) -> Path:
    """The same however it is given, whatever has become of the file itself."""
    path = config.absolute()
    return Path(os.path.realpath(path.parent)) / path.name


def _file_name(config: Path) -> str:
    digest = hashlib.sha256(os.fsencode(_name(config))).hexdigest()
    return f"place-{digest[:16]}.json"
