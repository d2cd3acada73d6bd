"""A machine that was cut off, taken for dead, and comes back: nothing of before stays."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.e2e.own_network import inside_command, why_not
from tests.ray_side.cut_off import NEXT

pytestmark = pytest.mark.e2e


def test_a_replica_that_was_cut_off_and_taken_for_dead_never_serves_again_and_is_taken_down() -> (
    None
):
    if reason := why_not():
        pytest.skip(reason)
    done = subprocess.run(
        inside_command("tests.ray_side.cut_off"), capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["engine_outlived_the_cut"], "there was something to fence"
    assert not told["engine_lives"]
    assert told["served_again"] == []
    assert told["ready_at_the_end"] == [NEXT]
    assert told["next_engine_lives"], "the machine itself is of use again"
