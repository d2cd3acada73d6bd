"""What is true of machines and money, by the cloud's own word, and what must be true of it.

No client can keep a vendor from making a machine twice, from making one long after it was asked
for, or from saying that one is not there which is. Such machines are *surplus*: they do not count
against `max_nodes` and the cap, but they must be ended as soon as any other that nobody stands for.

| surplus | since |
|---|---|
| `twin` | the vendor made a further machine for a node that has one |
| `late` | it came more than the visibility grace after it was last asked for |
| `denied` | a whole list lacked it that should have shown it, ending it was "not found", or the
call that made it was refused |
| `stray` | the test planted it under our name, for a node that never was |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NoReturn

from elasticd_providers.fake.calls import Call
from elasticd_providers.fake.faults import CallFault
from elasticd_providers.fake.identity import Identity, identity_of
from elasticd_providers.fake.machines import Machine
from tests.model.effects import USED
from tests.model.vendor import Account, Done

CLUSTER, LEDGER = "testing", "ledger0123456789"
VISIBILITY = 10.0
"""Seconds: the pools' `visibility`, within which a machine can be found by its name."""
VISIBILITY_GRACE = 60.0
"""Seconds: the pools' `visibility_grace`, within which lists show a machine."""
RATES = {"USD": 1_000_000, "CNY": 140_000}

STRAY_WITHIN = 300.0
"""Seconds after which a machine that no living node stands for has ended, from when the last of
these came true: nobody stands for it, its account does as it should, a controller runs that can
write its ledger and has its pool configured, and no other ledger's machine is in the way."""


STORY = 120
"""Lines of what happened that a failure shows."""


class Broken(AssertionError):
    """A promise is broken."""


@dataclass(frozen=True, slots=True)
class Permit:
    """What held when it was decided to rent a machine: nodes of the pool, rent in micro-USD.

    `number` counts the decisions: it holds for what was decided until then.
    """

    max_nodes: float = math.inf
    cap: float = math.inf
    number: int = 0


@dataclass(slots=True)
class Known:
    """One machine. `surplus`: why it is more than was asked for; empty: it is not. `asked_at`: when
    the call arrived that made it. `counted`: it was found to be within the limits."""

    machine: Machine
    identity: Identity | None
    account: Account
    surplus: str = ""
    shown: bool = False
    asked_at: float = 0.0
    unowned_since: float | None = None
    counted: bool = False

    @property
    def pool(self) -> str:
        """Empty for a machine of nobody that we know."""
        return self.identity.pool if self.identity is not None else ""

    @property
    def rented(self) -> bool:
        """Whether it is of our own ledger."""
        return self.identity is not None and self.identity.ledger_id == LEDGER

    @property
    def rent(self) -> int:
        """Micro-USD per hour, rounded up."""
        return -(-self.machine.price * RATES[self.machine.currency] // 1_000_000)


@dataclass(slots=True)
class Books:
    """`clock` in seconds; `written`: ids of the nodes that a ledger's row has ever told of.

    `adopted`: ledgers that people adopted, `promised`: those of which they were told that it is
    written down; `forgotten`: the others, where a controller has died over it.
    """

    clock: Callable[[], float]
    known: dict[str, Known] = field(default_factory=dict)
    adopted: set[str] = field(default_factory=set)
    promised: set[str] = field(default_factory=set)
    forgotten: set[str] = field(default_factory=set)
    story: list[str] = field(default_factory=list)
    broken: str = ""
    written: set[str] = field(default_factory=set)
    _permits: dict[str, Permit] = field(default_factory=dict)
    _hidden: set[str] = field(default_factory=set)
    _seen: dict[str, int] = field(default_factory=dict)

    def tell(self, text: str) -> None:
        """One more line of what happened, for whoever reads a failure."""
        self.story.append(f"{self.clock():9.2f}  {text}")

    def fail(self, text: str) -> NoReturn:
        """Raises `Broken`, with the story. Whoever swallows it: `broken` tells."""
        self.tell(f"BROKEN: {text}")
        self.broken = self.broken or "\n".join((text, *self.story[-STORY:]))
        raise Broken(self.broken)

    # What happens.

    def decided(self, node_id: str, permit: Permit) -> None:
        """The core wants a machine for this node; told again, the first time holds."""
        self._permits.setdefault(node_id, replace(permit, number=len(self._permits)))

    def is_new(self, node_id: str) -> bool:
        """Whether nobody has decided on this node before."""
        return node_id not in self._permits

    def calling(self, account: Account, pool: str, call: Call, fault: CallFault | None) -> None:
        """A call has arrived."""
        effect = "" if fault is None else f" [{fault.effect}]"
        if call.operation not in ("list", "offers", "notices") or effect:
            self.tell(f"{pool}: {call.operation} {_short(call.target)}{effect}")
        if call.operation in ("create", "find"):
            self._name_is_ours(pool, call)
            if call.operation == "create" and call.target.rpartition("/")[2] not in self.written:
                self.fail(f"{call.target} is asked for and not written down")
        elif call.target:
            self._machine_is_ours(account, pool, call)
        if call.operation == "find" and effect == " [empty]":
            self._hidden.add(call.target)

    def carried_out(self, account: Account, pool: str, call: Call, done: Done) -> None:
        """A call has had its effect."""
        if call.operation != "create":
            return
        for number, new in enumerate(self._enter(account)):
            self.tell(f"{pool}: made {new.machine.id}, there at {new.machine.created_at:.2f}")
            new.asked_at = done.arrived
            self._judge(new, further=number > 0)
            if 400 <= done.status < 500 and not new.surplus:
                self.denied(pool, new.machine.id)

    def planted(self, account: Account, surplus: str) -> Known:
        """The test has made a machine itself."""
        [new] = self._enter(account)
        self._mark(new, surplus)
        self.tell(f"planted {new.machine.id} {_short(new.machine.name)}")
        return new

    def listed(self, pool: str, shown: Iterable[str]) -> None:
        """The controller was given a whole list."""
        ids, now = set(shown), self.clock()
        for known in self.known.values():
            if known.pool == pool and known.machine.id in ids:
                known.shown = True
        for known in self.of(pool):
            old = now >= known.machine.created_at + VISIBILITY_GRACE
            if known.machine.id not in ids and (known.shown or old):
                self.denied(pool, known.machine.id)

    def denied(self, pool: str, machine_id: str) -> None:
        """The vendor said that it is not there."""
        for known in self.of(pool):
            if known.machine.id == machine_id and not known.surplus:
                self._mark(known, "denied")
                self.tell(f"{pool}: {machine_id} is denied by its vendor")

    # What is.

    def ours(self) -> list[Known]:
        """Machines that cost money now and are ours, or adopted."""
        now = self.clock()
        return [k for k in self.known.values() if k.machine.costs(now) and self._is_ours(k)]

    def of(self, pool: str) -> list[Known]:
        """Those of one pool."""
        return [k for k in self.ours() if k.pool == pool]

    def foreign(self) -> list[Known]:
        """Everybody else's, whether they cost money or not."""
        return [k for k in self.known.values() if not self._is_ours(k)]

    def spent(self, began: float) -> int:
        """Micro-USD that what was asked for has cost since `began`."""
        now, total = self.clock(), 0.0
        for known in self.known.values():
            machine = known.machine
            if known.surplus or not known.rented:
                continue
            end = now if machine.gone_at is None else min(now, machine.gone_at)
            total += max(0.0, end - max(began, machine.created_at)) * known.rent / 3600.0
        return int(total)

    def node_of(self, node_id: str) -> Known | None:
        """The machine of a node, if it costs money."""
        return next((k for k in self.ours() if k.identity and k.identity.node_id == node_id), None)

    def remembered(self, adopted: Iterable[str]) -> None:
        """By a new controller: what was promised, at least."""
        lost = self.adopted - set(adopted)
        if broken := lost & self.promised:
            self.fail(f"that {', '.join(broken)} was adopted was promised, and is forgotten")
        self.adopted -= lost
        self.forgotten |= lost

    # What must be.

    def check_limits(self) -> None:
        """What was asked for stays within what was allowed when it was asked for.

        An adopted machine counts as soon as a list has shown it.
        """
        asked = [k for k in self.ours() if not k.surplus and (k.rented or k.shown)]
        for new in asked:
            if new.counted:
                continue
            permit = self._permit(new)
            until_then = [k for k in asked if self._permit(k).number <= permit.number]
            beside = [k for k in until_then if k.pool == new.pool]
            if len(beside) > permit.max_nodes:
                told = f"{new.machine.id} is one of {len(beside)} machines of {new.pool}"
                self.fail(f"{told}, {permit.max_nodes:g} were allowed when it was asked for")
            rent = sum(k.rent for k in until_then)
            if rent > permit.cap:
                told = f"with {new.machine.id} the rent is {rent}"
                self.fail(f"{told}, the cap was {permit.cap:g} when it was asked for")
            new.counted = True

    def check_foreign(self) -> None:
        """Nobody has told somebody else's machine to end."""
        for known in self.foreign():
            who = known.identity
            once = who is not None and who.ledger_id in self.forgotten
            if known.machine.stop_asked_at is not None and not once:
                self.fail(f"somebody else's {known.machine.id} was told to end")

    def check_strays(
        self, owns: Callable[[Known], bool], since: Mapping[str, float | None]
    ) -> None:
        """`since` when all is well, by pool; `None`: it is not."""
        now = self.clock()
        for known in self.ours():
            assert known.identity is not None
            if owns(known):
                known.unowned_since = None
                continue
            if known.unowned_since is None:
                known.unowned_since = now
            well = since.get(known.identity.pool)
            if well is not None and now - max(well, known.unowned_since) > STRAY_WITHIN:
                why = known.surplus or "asked for"
                self.fail(
                    f"{known.machine.id} ({why}, {known.identity.node_id}) is paid for and nobody "
                    f"stands for it since {known.unowned_since:.0f}, all well since {well:.0f}"
                )

    # How it is done.

    @staticmethod
    def _mark(known: Known, surplus: str) -> None:
        known.surplus = surplus
        if surplus:
            USED[surplus] += 1

    def _is_ours(self, known: Known) -> bool:
        who = known.identity
        return (
            who is not None
            and who.cluster == CLUSTER
            and (who.ledger_id == LEDGER or who.ledger_id in self.adopted)
        )

    def _permit(self, known: Known) -> Permit:
        """Of a machine that people adopted: people may do that."""
        assert known.identity is not None
        node_id = known.identity.node_id
        if not known.rented:
            self.decided(node_id, Permit())
        permit = self._permits.get(node_id)
        if permit is None:
            self.fail(f"{known.machine.id} was rented and never decided on")
        return permit

    def _enter(self, account: Account) -> list[Known]:
        machines = account.cloud.machines()
        fresh = machines[self._seen.get(account.name, 0) :]
        self._seen[account.name] = len(machines)
        made = [Known(m, identity_of(m.name, m.tags), account) for m in fresh]
        self.known.update((f"{account.name}/{k.machine.id}", k) for k in made)
        return made

    def _judge(self, new: Known, further: bool) -> None:
        """Whether a machine that the vendor made is one that was asked for.

        `further`: the same call has made another one.
        """
        name = new.machine.name
        elder = [k for k in self.known.values() if k.machine.name == name and k is not new]
        if not elder:
            if new.machine.created_at > new.asked_at + VISIBILITY_GRACE:
                self._mark(new, "late")
            return
        self._mark(new, "twin")
        if further or name in self._hidden:
            return
        for known in elder:
            if known.surplus == "denied":
                continue
            after = new.asked_at - known.asked_at
            findable = new.asked_at > known.machine.created_at + VISIBILITY
            if findable or 0.0 <= after < VISIBILITY - 1.0:
                told = f"{known.machine.id} of the same node, asked for {after:.1f} s before"
                self.fail(f"{new.machine.id} was made beside {told}")

    def _name_is_ours(self, pool: str, call: Call) -> None:
        who = identity_of(call.target, {})
        if who is None or (who.cluster, who.pool, who.ledger_id) != (CLUSTER, pool, LEDGER):
            self.fail(f"{call.operation} of {call.target}, which is not ours")

    def _machine_is_ours(self, account: Account, pool: str, call: Call) -> None:
        known = self.known.get(f"{account.name}/{call.target}")
        if known is None:
            self.fail(f"{call.operation} of {call.target}, which never was")
        if not self._is_ours(known) or known.identity is None or known.identity.pool != pool:
            self.fail(f"{call.operation} of {call.target} ({known.machine.name}): not that pool's")


def _short(name: str) -> str:
    return name.rpartition("/")[2]
