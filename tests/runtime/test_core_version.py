"""The version of the core changes with everything that the core is made of."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path

import pytest

import elasticd
from elasticd import __version__
from elasticd.runtime.core_version import BESIDE, core_version

ROOT = Path(elasticd.__file__).parent


def test_everything_that_the_core_imports_is_in_its_version() -> None:
    """Also what it imports from beside it imports, which is nothing of ours."""
    inside = {f"elasticd.core.{path.stem}" for path in (ROOT / "core").glob("*.py")}
    beside = {f"elasticd.{Path(name).stem}" for name in BESIDE}
    for path in [*(ROOT / "core").glob("*.py"), *(ROOT / name for name in BESIDE)]:
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module == "elasticd.core":
                names = [f"elasticd.core.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            ours = {name for name in names if name.split(".")[0] == "elasticd"}
            assert ours <= inside | beside, path


def test_it_changes_with_the_core_and_with_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version() -> str:
        return core_version.__wrapped__()

    shutil.copytree(ROOT / "core", tmp_path / "core")
    for name in (*BESIDE, "clock.py"):
        shutil.copyfile(ROOT / name, tmp_path / name)
    monkeypatch.setattr(elasticd, "__file__", str(tmp_path / "__init__.py"))
    first = version()
    release, _, source = first.partition("+")
    assert (release, len(source)) == (__version__, 16)
    (tmp_path / "clock.py").write_text("")
    assert version() == first
    seen = {first}
    for name in ("core/demand.py", "core/new.py", *BESIDE):
        with (tmp_path / name).open("a") as file:
            file.write("# changed\n")
        seen.add(version())
    assert len(seen) == 3 + len(BESIDE)
