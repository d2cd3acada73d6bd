"""The proof's rules of notices: providers and machines tell them, repeat them, take them back."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import rule

from elasticd.core.events import NoticeArrived, NoticeSeen, NoticeTakenBack
from tests.core.machine_base import USED, Watched

PICK = st.integers(min_value=0, max_value=9)
KIND = st.sampled_from(["interruption", "rebalance", "maintenance"])


class Notices(Watched):
    """What is told of machines' ends, by whomever."""

    @rule(which=PICK, left=st.floats(0, 200), back=st.booleans(), kind=KIND)
    def a_notice_comes(self, which: int, left: float, back: bool, kind: str) -> None:
        ids = sorted(self.world.instances) or ["i-none"]
        instance = ids[which % len(ids)]
        USED["notice_back" if back else "notice"] += 1
        if back:
            self.step(NoticeTakenBack("n-" + instance, "spot", instance))
        else:
            self.step(NoticeArrived("n-" + instance, "spot", instance, kind, left))

    @rule(which=PICK, kind=st.none() | KIND)
    def a_machine_hears(self, which: int, kind: str | None) -> None:
        nodes = sorted(i.node_id or "" for i in self.world.instances.values())
        if nodes:
            USED[f"a_machine_hears_{kind or 'nothing'}"] += 1
            heard = (
                (NoticeSeen("x", kind, 60.0 if kind == "maintenance" else None),) if kind else ()
            )
            self.world.notices[nodes[which % len(nodes)]] = heard
