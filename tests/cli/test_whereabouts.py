"""Where a daemon is: the short way and the whole check say the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticd.cli.whereabouts import Whereabouts, whereabouts
from elasticd.errors import UsageError
from elasticd.settings.load import load

REST = """
cluster: test
node_pools: [{name: here, provider: local, max_nodes: 1}]
models: [{name: m, source: "file:weights"}]
"""


@pytest.mark.parametrize(
    "keys",
    [
        "state_dir: state",
        "state_dir: ~/state",
        "state_dir: /var/lib/x/../y\nadmin: {}",
        "state_dir: state\nadmin: {socket: run/a.sock}",
        "state_dir: state\nadmin: {socket: ~/a.sock, listen: '127.0.0.1:8701'}",
    ],
)
def test_the_short_way_says_what_the_whole_check_says(tmp_path: Path, keys: str) -> None:
    path = tmp_path / "elasticd.yaml"
    path.write_text(REST + keys, encoding="utf-8")
    checked = load(path, look_on_host=False)
    assert whereabouts(path) == Whereabouts(checked.admin_socket, checked.state_dir)


@pytest.mark.parametrize(
    "text",
    [
        REST,
        "state_dir: 3",
        "state_dir: ''",
        "state_dir: ~nobody-here/x",
        "state_dir: s\nadmin: [1]",
        "state_dir: s\nadmin: {socket: 7}",
        "state_dir: s\nstate_dir: t",
        "- state_dir",
        "",
    ],
)
def test_what_is_not_plain_is_left_to_the_whole_check(tmp_path: Path, text: str) -> None:
    path = tmp_path / "elasticd.yaml"
    path.write_text(text)
    assert whereabouts(path) is None


def test_a_problem_elsewhere_does_not_hide_the_daemon(tmp_path: Path) -> None:
    path = tmp_path / "elasticd.yaml"
    path.write_text("state_dir: state\ncolour: red\n")
    assert whereabouts(path) == Whereabouts(
        tmp_path / "state" / "run" / "admin.sock", tmp_path / "state"
    )


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        whereabouts(tmp_path / "none.yaml")
