"""What a controller that only observes sees, and the status it tells of it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Any

import structlog

from elasticd import __version__
from elasticd.core.events import Event, InstancesListed, ListFailed
from elasticd.core.specs import FleetSpec
from elasticd.ops.durations import age
from elasticd.runtime.config import ControllerConfig
from elasticd.runtime.contained import one_line
from elasticd.runtime.fault_memory import Fault
from elasticd.runtime.last_picture import LastKnown, LastPicture
from elasticd.runtime.observed_fleet import Listed, ObservedFleet
from elasticd.runtime.performer import Identity
from elasticd.runtime.pools import Pools
from elasticd.runtime.ports import Clock

WHAT_TO_DO = (
    "see the log for the fault; then stop this controller and start it again, and it tries once "
    "more (under systemd: `systemctl restart elasticd`); another version of elasticd tries by "
    "itself. Machines go on and cost money meanwhile: those that must go are ended at the provider"
)

_NEVER_RELOADED: Mapping[str, Any] = {
    "number": 0,
    "at_age": None,
    "running_for": None,
    "problem": "",
    "changed": [],
    "needs_restart": [],
    "warnings": [],
}

_log = structlog.get_logger()


class Sightings:
    """`known` and `picture` are of the ledger, the rest is heard from the providers."""

    def __init__(
        self,
        config: ControllerConfig,
        known: LastKnown,
        picture: LastPicture,
        fault: Fault,
        clock: Clock,
    ) -> None:
        self._config = config
        self._known = known
        self._picture = picture
        self._fault = fault
        self._clock = clock
        self._began = clock.now()
        self._lists: dict[str, tuple[float, InstancesListed]] = {}
        self._errors: dict[str, str] = {}
        self._pools: Pools | None = None
        self._observed = ObservedFleet(_fleet(config), known)
        self._trouble = known.problem
        self.why = (
            f"the controller only observes and does nothing: the fault {fault.signature} came "
            f"{fault.times} times"
        )
        self.problem = f"{self.why}: {fault.message}"

    async def watch(self) -> None:
        """Lists what the providers have, until it is cancelled."""
        if self._pools is None:
            if not self._known.ledger_id:
                await asyncio.Event().wait()  # whose machines to look for is not known
            self._pools = self._opened()
        self._trouble = self._known.problem
        await self._pools.run()

    def broken(self, fault: Exception) -> None:
        """Watching the providers failed; it is begun again."""
        self._trouble = f"the providers are not listed: {one_line(fault)}"
        _log.warning("observing_fault", exc_info=fault)

    async def aclose(self) -> None:
        """Lets go of the providers."""
        if self._pools is not None:
            await self._pools.aclose()

    def status(self) -> dict[str, Any]:
        """Everything, JSON-able; that nothing is done comes first."""
        now = self._clock.now()
        told = self._picture.status(now)
        told = {**told, **self._observed.complete(told, self._listed(now), now)}
        left = sum(node.get("phase") != "gone" for node in told["nodes"])
        return {
            "observe_only": self._told(now),
            **told,
            # Nothing is given back: it must never look as if everything was.
            "down": {"left": max(left, 1)} if told.get("down") else None,
            "recent": told["recent"] or list(self._known.recent),
            "controller": self._told_controller(now),
            "agent": {"seen_age": None, "error": "it is not asked"},
            "providers": self._health(),
        }

    def _opened(self) -> Pools:
        fleet, state_dir = self._config.wishes.fleet({}, {}), self._config.state_dir
        identity = Identity(fleet.cluster, self._known.ledger_id)
        pools = Pools(identity, state_dir, self._clock, self._hear)
        pools.apply(pools.prepare(fleet, self._config.wishes.pools))
        return pools

    def _hear(self, event: Event) -> None:
        if isinstance(event, InstancesListed):
            self._lists[event.pool] = (self._clock.now(), event)
            self._errors.pop(event.pool, None)
        elif isinstance(event, ListFailed) and event.what == "instances":
            self._errors[event.pool] = f"{event.error}: {event.message}"

    def _told(self, now: float) -> dict[str, Any]:
        since = max(0.0, now - self._fault.last_at)
        return {
            "text": (
                f"the controller has only observed for {age(since)}: it met the same fault "
                f"{self._fault.times} times and does nothing any more; what serves goes on"
            ),
            "fault": self._fault.signature,
            "message": self._fault.message,
            "times": self._fault.times,
            "since": self._fault.last_at,
            "age": since,
            "do": WHAT_TO_DO,
            "below": (
                "what was known of the fleet could not be read, so what is below is not the fleet"
                if self._known.problem
                else "what is below is what the ledger held when acting stopped"
            ),
        }

    def _told_controller(self, now: float) -> dict[str, Any]:
        return {
            "version": __version__,
            "pid": os.getpid(),
            "ledger_id": self._known.ledger_id,
            "epoch": self._known.epoch,
            "uptime": now - self._began,
            "in_flight": [],
            "reload": dict(_NEVER_RELOADED),
            "rounds": 0,
            "problem": self.problem,
            "ledger_error": self._trouble,
        }

    def _listed(self, now: float) -> dict[str, Listed]:
        """By pool: what its provider has told, or why nothing yet."""
        return {
            name: Listed(
                listed.instances if listed is not None else (),
                None if at is None else max(0.0, now - at),
                self._errors.get(name, ""),
            )
            for name in self._health()
            for at, listed in [self._lists.get(name, (None, None))]
        }

    def _health(self) -> dict[str, Any]:
        pools = self._pools.providers if self._pools is not None else {}
        return {name: pool.health() for name, pool in pools.items()}


def _fleet(config: ControllerConfig) -> FleetSpec | None:
    """What is wanted; where not even that can be made, the rest is still told."""
    try:
        return config.wishes.fleet({}, {})
    except Exception as broken:
        _log.warning("no_picture_of_the_configuration", error=one_line(broken))
        return None
