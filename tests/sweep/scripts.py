"""The lives that are swept, part by part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tests.sweep.fleet import LATE, MODEL
from tests.sweep.life import Life, Script
from tests.sweep.view import CLUSTER, View, given_back, settled

_BY = "the sweep"
ANOTHER_CLUSTER = "another-cluster"

LOST = {"operation": "create", "effect": "lost"}
TWICE = {"operation": "create", "effect": "twice"}
DELIVERED_LATE = {"operation": "create", "effect": "late", "seconds": LATE}
END_LOST = {"operation": "terminate", "effect": "lost"}
LIST_LOST = {"operation": "list", "effect": "lost"}


async def whole_life(life: Life) -> None:
    """Scale up, preemption, loss, a machine that does not boot, reload, scale down, `down`."""
    await life.plant("somebodys-machine")
    await life.plant_node(ANOTHER_CLUSTER, "a-ledger-of-theirs")
    life.part("start")
    await life.faults(LOST)
    await life.begin()
    await life.rest(settled(1))
    life.part("scale up")
    await life.faults(TWICE, DELIVERED_LATE)
    await _scale(life, 3)
    life.part("preemption with notice")
    await life.faults(LOST, LIST_LOST)
    await _preempt(life, notice=0.4)
    await life.rest(settled(3))
    life.part("sudden loss")
    await life.faults(DELIVERED_LATE)
    await _preempt(life, notice=None)
    await life.rest(settled(3))
    life.part("a machine that does not boot")
    await life.faults(boot_fails=["*"])
    await life.command(lambda admin: admin.scale(MODEL, 4, None, _BY))
    await life.until(lambda v: "" if _boot_log_kept(v) else "the log of a machine that failed")
    await life.faults()
    await life.rest(settled(4))
    await _reload(life)
    life.part("scale down")
    await life.faults(END_LOST)
    await _scale(life, 2)
    await _down(life)


async def _scale(life: Life, replicas: int) -> None:
    await life.command(lambda admin: admin.scale(MODEL, replicas, None, _BY))
    await life.rest(settled(replicas))


async def _preempt(life: Life, notice: float | None) -> None:
    """The oldest machine."""
    machine_id = (await life.until(lambda view: "" if view.own else "a machine")).own[0]["id"]
    await life.site.preempt(machine_id, notice)
    await life.until(lambda v: f"the end of {machine_id}" if _has(v, machine_id) else "")


async def _reload(life: Life) -> None:
    """The pool grows, and its provider is opened anew."""
    life.part("reload")
    life.write_config(max_nodes=6, notices_every="150ms")
    await life.command(lambda admin: admin.reload(_BY))

    def missing(view: View) -> str:
        pools = view.status["pools"] if view.status is not None else [{"max_nodes": None}]
        return settled(4)(view) if pools[0]["max_nodes"] == 6 else "a pool of 6"

    await life.rest(missing)


async def _down(life: Life) -> None:
    """In the middle of launches, one of which is delivered afterwards."""
    life.part("down")
    asked = (await life.until(lambda _: "")).count("create")
    await life.faults(DELIVERED_LATE, END_LOST)
    await life.command(lambda admin: admin.scale(MODEL, 4, None, _BY))
    await life.until(lambda v: "" if v.count("create") > asked else "a creation under way")
    await life.command(lambda admin: admin.down(_BY))
    await life.rest(given_back)


def _boot_log_kept(view: View) -> bool:
    """A death may cost the log of one machine; then that of the next one that fails is kept."""
    return any(node["log_tail"] for node in (view.status or {}).get("nodes", ()))


def _has(view: View, machine_id: str) -> bool:
    return any(machine["id"] == machine_id for machine in view.own)


async def beside_another_ledger(life: Life) -> None:
    """Machines of our cluster's name that another ledger has made: nothing is bought or ended."""
    life.part("another ledger")
    await life.faults()
    await life.plant_node(CLUSTER, "another-ledger-0001")
    await life.begin()
    await life.until(_refuses)
    await life.command(lambda admin: admin.scale(MODEL, 2, None, _BY))
    await life.rest(_refuses)
    await life.command(lambda admin: admin.down(_BY))
    view = await life.rest(given_back)
    asked = view.count("create") + view.count("terminate")
    life.check(not asked, f"{asked} machines were bought or ended beside another ledger")


def _refuses(view: View) -> str:
    """That it names the other ledger as what keeps it from buying."""
    told: Mapping[str, Any] = view.status or {}
    blocked = [model["blocked"] for model in told.get("models", ())]
    return "" if any("another ledger" in text for text in blocked) else f"a refusal: {blocked}"


WHOLE_LIFE = "whole life"

SCRIPTS: Final[Mapping[str, Script]] = {
    WHOLE_LIFE: whole_life,
    "beside another ledger": beside_another_ledger,
}
