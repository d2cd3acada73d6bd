"""A signal in the middle of something: it ends in time, and the next start knows what was begun."""

from __future__ import annotations

import signal
import time
from typing import Any

import pytest

from tests.cases.program import MODEL, Program, program

pytestmark = pytest.mark.slow

_DRAIN = 8.0


def _node(status: dict[str, Any], node_id: str) -> dict[str, Any]:
    return next(node for node in status["nodes"] if node["id"] == node_id)


async def _draining(controller: Program) -> tuple[str, float]:
    """A node that is drained, and since when; a stream might still run there."""
    status = await controller.until_whole()
    node_id = str(status["nodes"][0]["id"])
    began = time.monotonic()
    await controller.ask(f"/api/v1/nodes/{node_id}/drain", {"seconds": _DRAIN, "by": "test"})
    await controller.until(lambda s: _node(s, node_id)["phase"] == "draining", "the drain")
    return node_id, began


async def _drained(controller: Program, node_id: str, began: float) -> None:
    """It had its whole time, then its machine went, and exactly one took its place."""
    status = await controller.until(lambda s: _node(s, node_id)["phase"] == "gone", "its end")
    assert time.monotonic() - began >= _DRAIN - 3.0  # the margin before a cut
    assert "drained by test" in _node(status, node_id)["reason"]
    await controller.until_whole()
    machines = await controller.site.machines()
    assert len(machines) == 3
    assert sum(machine["costs"] for machine in machines) == 2


async def test_a_drain_goes_on_over_reloads_and_a_stop_neither_cut_short_nor_doubled() -> None:
    async with program() as controller:
        await controller.start()
        node_id, began = await _draining(controller)
        for limit in range(3):
            controller.write(queue_limit=10 + limit)
            controller.signal(signal.SIGHUP)
            status = await controller.until(
                lambda s, done=limit: s["controller"]["reload"]["number"] > done, "the reload"
            )
            assert status["controller"]["reload"]["problem"] == ""
            assert _node(status, node_id)["phase"] == "draining"
        controller.signal(signal.SIGTERM)
        assert await controller.ended() == 0
        await controller.start()
        status = await controller.until(lambda s: s["nodes"], "the next life")
        assert _node(status, node_id)["phase"] == "draining"
        assert _node(status, node_id)["seconds_left"] < _DRAIN
        await _drained(controller, node_id, began)


async def test_a_second_signal_waits_for_no_answer_and_loses_nothing() -> None:
    async with program() as controller:
        site = controller.site
        await site.faults(calls=[{"operation": "create", "effect": "hang_after", "times": 2}])
        await controller.start()
        await site.until(
            lambda truth: truth["calls"]["counts"].get("create", 0) == 2, "the launches", 40.0
        )
        controller.signal(signal.SIGTERM)
        controller.signal(signal.SIGTERM)
        assert await controller.ended() == 0
        await site.faults()
        await controller.start()
        await controller.until_whole()
        assert len(await site.machines()) == 2


async def test_a_stop_in_the_middle_of_writing_keeps_what_was_decided() -> None:
    """Signals meet a controller that decides and writes all the time, at any point of it."""
    async with program() as controller:
        # A replica may be ready before it is too many; nobody tells here that it is idle.
        controller.write(drain_timeout="1s")
        await controller.start()
        await controller.until_whole()
        for wanted in (3, 4):
            scaling = [
                controller.ask(
                    f"/api/v1/models/{MODEL}/scale",
                    {"replicas": count, "seconds": None, "by": "test"},
                )
                for count in (*range(2, 6), wanted)
            ]
            for ask in scaling:
                await ask
            controller.signal(signal.SIGTERM)
            assert await controller.ended() == 0
            await controller.start()
            status = await controller.until(lambda s: s["models"], "the next life")
            assert status["models"][0]["hold"]["replicas"] == wanted
        await controller.until_whole(4)
        machines = await controller.site.machines()
        nodes = [machine["tags"]["elasticd-node"] for machine in machines]
        assert len(nodes) == len(set(nodes))
        assert sum(machine["costs"] for machine in machines) == 4


async def test_signals_to_reload_and_to_stop_at_once_end_it_in_time() -> None:
    async with program() as controller:
        await controller.start()
        await controller.until_whole()
        for _ in range(5):
            controller.signal(signal.SIGHUP)
        controller.signal(signal.SIGTERM)
        controller.signal(signal.SIGHUP)
        assert await controller.ended() == 0
        await controller.start()
        await controller.until_whole()
        assert len(await controller.site.machines()) == 2
