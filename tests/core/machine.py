"""Whatever happens in whatever order: a controller in a hostile world, as a Hypothesis machine."""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
from hypothesis.stateful import initialize, rule

from elasticd.core.actions import (
    Action,
    LaunchNode,
    StartReplica,
    StopReplica,
    TerminateNode,
)
from elasticd.core.decide import Core
from elasticd.core.events import (
    AdoptRequested,
    ClusterObserved,
    ClusterUnreachable,
    Configured,
    DayTold,
    DownRequested,
    DrainRequested,
    EndpointBroken,
    HoldReleased,
    InstancesListed,
    LaunchFailed,
    ListFailed,
    NodeSeen,
    ReplicaOrderFailed,
    ReplicaSeen,
    ScaleHeld,
    ServeRequested,
    TerminateFailed,
    UndrainRequested,
)
from elasticd.core.specs import Budget, FleetSpec, ModelSpec
from elasticd.provider import Instance, InstanceState
from tests.core.machine_base import FOREIGN, MAX_NODES, USED, models, spot
from tests.core.machine_notices import PICK, Notices
from tests.core.world import LEDGER

REFUSALS = [
    "NoCapacity",
    "QuotaExceeded",
    "PriceTooHigh",
    "AuthFailed",
    "BillingBlocked",
    "Rejected",
    "InstanceNotFound",
]
UNCLEAR = ["Unavailable", "RateLimited", "AuthFailed"]


class AnyOrder(Notices):
    """A controller in a world of late, lost, repeated and false answers, deaths and restarts."""

    @initialize(rounds=st.integers(0, 8))
    def begin(self, rounds: int) -> None:
        USED["examples"] += 1
        self.step(Configured(self.world.spec))
        self.go_well(rounds)

    @rule(rounds=st.integers(1, 6))
    def things_go_well(self, rounds: int) -> None:
        USED["things_go_well"] += 1
        self.go_well(rounds)

    @rule(rounds=st.integers(1, 3), queued=st.integers(0, 9), name=st.sampled_from(["m", "z"]))
    def things_go_well_under_load(self, rounds: int, queued: int, name: str) -> None:
        USED["things_go_well_under_load"] += 1
        self.step(self.world.demand(queued, 1, name))
        self.go_well(rounds, 2.0)

    @rule()
    def orders_and_reports_flow(self) -> None:
        """Everything is carried out and seen, but nothing finishes to load or boot by itself."""
        USED["orders_and_reports_flow"] += 1
        self.world.now += 1.0
        todo, self.world.pending = self.world.pending, []
        answers = [a for a in map(self.world.carry_out, todo) if a is not None]
        self.step(*answers, *self.world.listings(), self.world.observed())

    @rule(seconds=st.sampled_from([0.5, 1.0, 3.0, 20.0, 100.0]))
    def time_passes(self, seconds: float) -> None:
        USED["time_passes"] += 1
        self.world.now += seconds
        self.step()

    @rule()
    def lists_arrive(self) -> None:
        USED["lists_arrive"] += 1
        self.step(*self.world.listings())

    @rule(what=st.sampled_from(["instances", "offerings"]))
    def a_list_fails(self, what: str) -> None:
        USED["a_list_fails"] += 1
        self.step(ListFailed("spot", what, "Unavailable", "503"))

    @rule(which=PICK)
    def an_order_is_carried_out(self, which: int) -> None:
        if self.world.pending:
            USED["an_order_is_carried_out"] += 1
            action = self.world.pending.pop(which % len(self.world.pending))
            answer = self.world.carry_out(action)
            if answer is not None:
                self.answers.append(answer)

    @rule()
    def every_order_is_carried_out_and_no_answer_comes_yet(self) -> None:
        todo, self.world.pending = self.world.pending, []
        self.answers += [a for a in map(self.world.carry_out, todo) if a is not None]

    @rule(which=PICK, definite=st.booleans(), error=st.sampled_from(REFUSALS))
    def an_order_fails(self, which: int, definite: bool, error: str) -> None:
        if self.world.pending:
            self._fail(self.world.pending.pop(which % len(self.world.pending)), definite, error)

    @rule(error=st.sampled_from(REFUSALS))
    def every_launch_is_refused(self, error: str) -> None:
        todo, self.world.pending = self.world.pending, []
        for order in todo:
            if isinstance(order, LaunchNode):
                self._fail(order, True, error)
            else:
                self.world.pending.append(order)

    @rule(what=st.sampled_from(["instances", "offerings"]), error=st.sampled_from(UNCLEAR))
    def a_provider_is_away(self, what: str, error: str) -> None:
        USED[f"away_{error}"] += 1
        for _ in range(4):
            self.world.now += 1.0
            self.step(ListFailed("spot", what, error, "no"))

    @rule(definite=st.booleans(), count=st.sampled_from([0, 1, 4]))
    def the_wish_changes_and_its_orders_fail(self, definite: bool, count: int) -> None:
        self.step(ScaleHeld("m", count, 20.0, "test"), self.world.idle_loads())
        self.world.now += 2.0
        self.step(self.world.idle_loads())
        todo, self.world.pending = self.world.pending, []
        for order in todo:
            self._fail(order, definite)

    def _fail(self, order: Action, definite: bool, refusal: str = "NoCapacity") -> None:
        USED[f"{type(order).__name__} {'refused' if definite else 'unanswered'}"] += 1
        match order:
            case LaunchNode(node_id=node_id):
                if not (definite and self.world.launched.get(node_id)):
                    error = refusal if definite else "Unavailable"
                    USED[f"launch_{error}"] += 1
                    self.step(LaunchFailed(node_id, error, "no", definite))
            case TerminateNode(node_id=node_id, instance_id=instance_id):
                self.step(TerminateFailed(node_id, instance_id, "Unavailable", "no"))
            case StartReplica(replica_id=rid):
                self.step(ReplicaOrderFailed(rid, 1, "start", "no", definite))
            case StopReplica(replica_id=rid):
                self.step(ReplicaOrderFailed(rid, 1, "stop", "no", definite))
            case _:
                pass

    @rule(which=PICK, keep=st.booleans())
    def an_answer_arrives(self, which: int, keep: bool) -> None:
        if self.answers:
            index = which % len(self.answers)
            USED["an_answer_repeated" if keep else "an_answer_arrives"] += 1
            answer = self.answers[index] if keep else self.answers.pop(index)
            self.step(answer)

    @rule(which=PICK)
    def an_answer_is_lost(self, which: int) -> None:
        if self.answers:
            USED["an_answer_is_lost"] += 1
            self.answers.pop(which % len(self.answers))

    @rule()
    def machines_boot(self) -> None:
        USED["machines_boot"] += 1
        self.world.boot_all()

    @rule()
    def engines_load(self) -> None:
        USED["engines_load"] += 1
        self.world.load_all()

    @rule(complete=st.booleans())
    def the_agent_reports(self, complete: bool) -> None:
        USED["the_agent_reports"] += 1
        self.step(self.world.observed(complete))

    @rule()
    def the_agent_is_away(self) -> None:
        USED["the_agent_is_away"] += 1
        self.step(ClusterUnreachable("refused"))

    @rule(queued=st.integers(0, 9), in_flight=st.integers(0, 9), name=st.sampled_from(["m", "z"]))
    def demand_is_reported(self, queued: int, in_flight: int, name: str) -> None:
        USED["demand_is_reported"] += 1
        self.step(self.world.demand(queued, in_flight, name), self.world.idle_loads())

    @rule(which=PICK)
    def a_node_dies(self, which: int) -> None:
        nodes = sorted(i.node_id or "" for i in self.world.instances.values())
        if nodes:
            USED["a_node_dies"] += 1
            self.world.kill_node(nodes[which % len(nodes)])

    @rule(which=PICK)
    def an_engine_dies(self, which: int) -> None:
        if self.world.replicas:
            rid = sorted(self.world.replicas)[which % len(self.world.replicas)]
            USED["an_engine_dies"] += 1
            old = self.world.replicas.pop(rid)
            self.world.replicas[rid] = ReplicaSeen(rid, 1, old.node_id, "stopped", error="-9")

    @rule(which=PICK)
    def a_connection_breaks(self, which: int) -> None:
        USED["a_connection_breaks"] += 1
        endpoints = self.world.open_endpoints() or ["r-none"]
        self.step(EndpointBroken(endpoints[which % len(endpoints)], 1, "reset"))

    @rule(serve=st.booleans())
    def somebody_asks_for_down_or_to_serve(self, serve: bool) -> None:
        USED["somebody_asks_for_down_or_to_serve"] += 1
        self.step(ServeRequested("test") if serve else DownRequested("test"))

    @rule()
    def the_controller_restarts(self) -> None:
        USED["the_controller_restarts"] += 1
        rows = list(self.world.rows.values())
        self.world.restart()
        self.twin = Core(LEDGER, self.world.epoch, rows)
        self.twin.step(self.world.now, (Configured(self.world.spec),))

    @rule()
    def lists_show_machines_that_are_ending(self) -> None:
        for key, instance in sorted(self.world.instances.items())[:1]:
            USED["machine_ending"] += 1
            self.world.instances[key] = replace(instance, state=InstanceState.STOPPING)

    @rule(which=PICK, late=st.booleans())
    def a_machine_hides_its_gpus(self, which: int, late: bool) -> None:
        nodes = sorted(i.node_id or "" for i in self.world.instances.values())
        if nodes and late:
            USED["gpus_late"] += 1
            self.world.gpuless.add(nodes[which % len(nodes)])
        elif self.world.gpuless:
            USED["gpus_come_at_last"] += 1
            self.world.gpuless.pop()

    @rule(which=PICK, free=st.booleans())
    def something_holds_a_gpu(self, which: int, free: bool) -> None:
        nodes = sorted(self.world.joined)
        if free:
            self.world.held.clear()
        elif nodes:
            USED["gpu_held"] += 1
            self.world.held[nodes[which % len(nodes)]] = ("GPU 0 is held by pid 1 (x)",)

    @rule(which=PICK, how=st.sampled_from(["fetching", "unordered", "stalled", "unknown", "crash"]))
    def a_replica_reports_oddly(self, which: int, how: str) -> None:
        if not self.world.replicas:
            return
        rid = sorted(self.world.replicas)[which % len(self.world.replicas)]
        seen = self.world.replicas[rid]
        if seen.phase == "stopped":
            return
        odd = {
            "fetching": replace(seen, phase="fetching", url=""),
            "unordered": replace(seen, phase="starting", url="", unordered=True),
            "stalled": replace(seen, stalled_for=500.0),
            "unknown": replace(seen, phase="unknown"),
            "crash": replace(seen, phase="stopped", error="exit 1", log_tail=("Traceback",)),
        }
        USED[f"replica_{how}"] += 1
        self.world.replicas[rid] = odd[how]
        self.step(self.world.observed())

    @rule()
    def every_engine_crashes(self) -> None:
        if self.world.replicas:
            USED["every_engine_crashes"] += 1
        for rid, seen in self.world.replicas.items():
            self.world.replicas[rid] = replace(seen, phase="stopped", error="no such file")
        self.step(self.world.observed())

    @rule(which=PICK, seconds=st.sampled_from([0.0, 5.0, 60.0, 600.0]), back=st.booleans())
    def somebody_drains_a_node(self, which: int, seconds: float, back: bool) -> None:
        nodes = sorted(self.world.phases()) or ["n-none"]
        node_id = nodes[which % len(nodes)]
        USED["undrain" if back else "drain"] += 1
        if back:
            self.step(UndrainRequested(node_id, "test"))
        else:
            self.step(DrainRequested(node_id, seconds, "test"))

    @rule(count=st.integers(0, 5), seconds=st.sampled_from([None, 10.0, 300.0]), back=st.booleans())
    def somebody_holds_a_model(self, count: int, seconds: float | None, back: bool) -> None:
        USED["hold_released" if back else "hold"] += 1
        if back:
            self.step(HoldReleased("m", "test"))
        else:
            self.step(ScaleHeld("m", count, seconds, "test"))

    @rule(
        spec=st.sampled_from(["one", "two", "three"]),
        most=st.integers(1, 4),
        min_zero=st.booleans(),
        what=st.sampled_from(["spec", "bounds", "close", "open", "without z", "retry"]),
    )
    def a_reload(self, spec: str, most: int, min_zero: bool, what: str) -> None:
        USED[f"reload_{what}"] += 1
        old = self.world.spec
        wanted: tuple[ModelSpec, ...] = old.models
        pools = old.pools
        if what == "spec":
            wanted = models(spec)
        elif what == "bounds":
            wanted = models(old.models[0].spec_hash.removeprefix("m-"), most, min_zero)
        elif what == "without z":
            wanted = old.models[:1]
        elif what in ("close", "open"):
            pools = (spot(0 if what == "close" else MAX_NODES),)
        self.world.spec = FleetSpec("c", wanted, pools, old.budget)
        self.step(Configured(self.world.spec, retry_failed=what == "retry"))

    @rule(which=PICK)
    def a_machine_is_delivered_twice(self, which: int) -> None:
        machines = sorted(self.world.instances.items())
        if machines:
            USED["delivered_twice"] += 1
            key, first = machines[which % len(machines)]
            twin = f"{key}-twin-{self.world.twins}"
            self.world.twins += 1
            self.world.instances[twin] = replace(first, instance_id=twin)
            self.step(*self.world.listings())

    @rule(adopt=st.booleans())
    def machines_of_another_ledger_turn_up(self, adopt: bool) -> None:
        if adopt and any(i.ledger_id == FOREIGN for i in self.world.instances.values()):
            USED["adopted"] += 1
            self.adopted = True
            self.step(AdoptRequested(FOREIGN, "test"))
        elif "i-foreign" not in self.world.instances and not self.adopted:
            USED["foreign"] += 1
            self.world.instances["i-foreign"] = Instance(
                "i-foreign", "n-foreign", FOREIGN, InstanceState.RUNNING, self.world.offerings[0]
            )
            self.step(*self.world.listings())

    @rule()
    def lists_lack_marks_for_a_while(self) -> None:
        if self.world.instances:
            USED["unmarked"] += 1
        bare = tuple(
            replace(i, ledger_id=None, node_id=None) for i in self.world.instances.values()
        )
        self.step(InstancesListed("spot", bare))

    @rule(cap=st.sampled_from([None, 400_000, 600_000, 1_200_000, 2_000_000]))
    def the_budget_changes(self, cap: int | None) -> None:
        USED["budget"] += 1
        self.world.spec = replace(self.world.spec, budget=Budget(max_per_hour=cap))
        self.step(Configured(self.world.spec))

    @rule(which=PICK)
    def a_machine_has_other_versions(self, which: int) -> None:
        booting = [i for i, phase in self.world.phases().items() if phase == "booting"]
        if not booting:
            self.every_order_is_carried_out_and_no_answer_comes_yet()
            self.step(*self.answers, *self.world.listings())
            booting = [i for i, phase in self.world.phases().items() if phase == "booting"]
        if booting:
            USED["mismatch"] += 1
            seen = NodeSeen(booting[which % len(booting)], None, mismatch="Ray 2.59, head 2.60")
            self.step(ClusterObserved((seen,), (), False))

    @rule()
    def the_day_turns(self) -> None:
        USED["day"] += 1
        self.step(DayTold(self.world.now, self.world.now + 86_400.0))

    @rule()
    def a_machine_is_delivered_late_for_nobody(self) -> None:
        USED["late_delivery"] += 1
        key = f"i-late-{len(self.world.instances)}"
        self.world.instances[key] = Instance(
            key, "n-of-an-earlier-life", LEDGER, InstanceState.RUNNING, self.world.offerings[0]
        )
        self.step(*self.world.listings())
