"""A replica that is cut off: a link of a network of our own is really taken down.

What becomes of the machine behind such a link is in `tests/ray_side/test_cut_off.py`.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tests.e2e.own_network import inside_command, why_not
from tests.e2e.partition import STREAMS

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    if reason := why_not():
        pytest.skip(reason)
    done = subprocess.run(
        inside_command("tests.e2e.partition"), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("scene", ["comes_back", "is_fenced"])
def test_streams_of_a_replica_that_is_cut_off_go_on_elsewhere(
    told: dict[str, Any], scene: str
) -> None:
    figures = told[scene]
    assert figures["left"] >= STREAMS // 4
    assert figures["left_seams"] == [1], "moved once each"
    assert figures["stayed_seams"] == 0, "no other stream was touched"


@pytest.mark.parametrize("scene", ["comes_back", "is_fenced"])
def test_every_answer_is_exact_nothing_twice_nothing_missing(
    told: dict[str, Any], scene: str
) -> None:
    assert told[scene]["faults"] == []


def test_what_a_left_replica_still_sends_when_it_is_heard_of_again_is_given_to_nobody(
    told: dict[str, Any],
) -> None:
    figures = told["comes_back"]
    assert figures["late_tokens"] > 0, "it had more to say"
    assert figures["going_at_heal"] > 0, "while its streams went on elsewhere"


def test_a_replica_that_is_replaced_while_it_is_cut_off_never_serves_again(
    told: dict[str, Any],
) -> None:
    figures = told["is_fenced"]
    assert figures["asked_after_fence"] == 0
    assert figures["served_by_replacement"] > 0
