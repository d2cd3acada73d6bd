"""`elasticd run` and a state directory it cannot have."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticd.cli import main, run_plan

TEXT = """
cluster: test
state_dir: {state_dir}
node_pools: [{{name: here, provider: local, max_nodes: 1}}]
models: [{{name: m, source: "file:weights"}}]
"""


@pytest.mark.parametrize(
    ("state_dir", "told"),
    [
        ("occupied/state", "occupied/state cannot be a directory"),
        ("/proc/x/state", "/proc/x/state cannot be made: No such file"),
        ("occupied", "occupied cannot be a directory"),
        ('"st\\0ate"', "elasticd.yaml:3: not YAML: the character U+0000"),
        ("~nosuchuser/x", "elasticd.yaml:3: state_dir: '~nosuchuser/x': no home directory"),
    ],
)
def test_a_state_dir_that_cannot_be_had_is_2_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], state_dir: str, told: str
) -> None:
    (tmp_path / "weights").mkdir()
    (tmp_path / "occupied").write_text("a file")
    config = tmp_path / "elasticd.yaml"
    config.write_text(TEXT.format(state_dir=state_dir))
    assert main(["run", "-c", str(config)]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert str(config) in error


def test_a_state_dir_that_cannot_be_written_is_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Permissions do not bind root, so the answer of the system is set here.
    monkeypatch.setattr(run_plan.os, "access", lambda *_: False)
    (tmp_path / "weights").mkdir()
    config = tmp_path / "elasticd.yaml"
    config.write_text(TEXT.format(state_dir="state"))
    assert main(["run", "-c", str(config)]) == 2
    assert "run in it cannot be written" in capsys.readouterr().err
