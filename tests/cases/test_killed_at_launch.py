"""The controller ends while its launches are under way: the next one finds what it needs."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from tests.cases.program import Program, program

pytestmark = pytest.mark.slow

HOLDS: dict[str, dict[str, Any]] = {
    "done, and the answer is held": {"effect": "delayed", "seconds": 60.0},
    "done, and the answer never comes": {"effect": "hang_after"},
    "done after the end": {"effect": "slow", "seconds": 1.5},
    "never done": {"effect": "hang"},
}
WANTED = len(HOLDS)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "stopped"])
async def test_after_an_end_during_launches_there_is_one_machine_for_each_node(
    number: signal.Signals,
) -> None:
    async with program(WANTED) as controller:
        site = controller.site
        held = [{"operation": "create", "times": 1, **hold} for hold in HOLDS.values()]
        await site.faults(calls=held)
        foreign = await site.plant("somebody's")
        await controller.start()
        await site.until(
            lambda truth: truth["calls"]["counts"].get("create", 0) == WANTED, "the launches", 40.0
        )
        controller.signal(number)
        code = await controller.ended()
        assert code == (0 if number is signal.SIGTERM else -number)
        await site.faults()
        await controller.start()
        await controller.until_whole()
        await _still_whole(controller)
        paid = {machine["id"] for machine in await site.paid()}
        assert foreign["id"] in paid
        assert len(paid) == WANTED + 1
        ours = [m for m in await site.machines() if m["id"] != foreign["id"]]
        nodes = {machine["tags"]["elasticd-node"] for machine in ours}
        assert len(nodes) == len(ours) == WANTED


async def _still_whole(controller: Program) -> None:
    """Also after some lists more."""
    before = await controller.site.calls("list")
    await controller.site.until(
        lambda truth: truth["calls"]["counts"]["list"] >= before + 3, "three lists"
    )
    await controller.until_whole()
