"""The fake cloud's front desk: turns a call into what goes over the wire, as the script wants it.

Pure and synchronous like the cloud behind it. Waiting, hanging and hanging up are told, not done:
`handling` does them, for the HTTP site and for a test without one alike.

| call | answer |
|---|---|
| `whoami` | `{"account"}` |
| `offers` | `{"offers": […]}` |
| `create` | 201 `{"machines": […], "errors": [{"zone", "code", "message"}]}` |
| `find` (exact name) | `{"machines": […], "total"}`, lately ended ones included |
| `list` | `{"machines": […], "next": cursor or null, "total"}` |
| `terminate` | 202 `{"id", "state"}` |
| `boot_log` | `{"log"}` |
| `notices` | `{"notices": [{"id", "machine_id", "status", "seconds_left"}]}` |
| `preempt` (a drill) | 202 `{"id"}` |

Errors are `{"error": {"code", "message"}}`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from elasticd_providers.fake.calls import Answer, Call, CallLog, CallRecord
from elasticd_providers.fake.cloud import Cloud
from elasticd_providers.fake.faults import CallFault, Faults, Operation
from elasticd_providers.fake.garble import REFUSALS, garbled, garbled_document, not_carried_out
from elasticd_providers.fake.orders import Order, Refusal, Sight, Stock

ACCOUNT = "account-1"
_CHANGING = ("create", "terminate", "preempt")


class Desk:
    """One cloud's answers. `token` is what customers must show."""

    def __init__(self, cloud: Cloud, token: str) -> None:
        self.cloud = cloud
        self.log = CallLog()
        self.changed = True
        """Whether `to_json` may differ from what it was when this was last set to false."""
        self._token = token
        self._met: list[int] = []
        """For each entry of the script: how many calls it has met."""
        self._operations: Mapping[Operation, Callable[[Call, CallFault | None], Answer]] = {
            "whoami": lambda call, fault: _answer(200, {"account": ACCOUNT}),
            "offers": self._offers,
            "create": self._create,
            "find": self._find,
            "list": self._list,
            "terminate": self._terminate,
            "boot_log": self._boot_log,
            "notices": self._notices,
            "preempt": self._preempt,
        }

    def set_faults(self, faults: Faults) -> None:
        """Replaces all faults; the script begins anew."""
        self.cloud.faults = faults
        self._met = []
        self.changed = True

    def take(self, call: Call) -> tuple[CallFault | None, CallRecord]:
        """Notes the call and says what is to go wrong with it."""
        fault = self._next_fault(call)
        effect = None if fault is None else fault.effect
        return fault, self.log.add(self.cloud.now, call.operation, call.target, effect)

    def answer(self, call: Call, fault: CallFault | None, record: CallRecord) -> Answer:
        """Carries the call out, unless the fault speaks against it, and words the answer."""
        answer = self._answer(call, fault)
        self.changed |= call.operation in _CHANGING
        self.log.answered(record, answer.status)
        return answer

    def to_json(self) -> dict[str, Any]:
        """All but the calls, which are kept one by one."""
        return {"cloud": self.cloud.to_json(), "met": self._met}

    @classmethod
    def from_json(cls, clock: Callable[[], float], token: str, document: dict[str, Any]) -> Desk:
        desk = cls(Cloud.from_json(clock, document["cloud"]), token)
        desk._met = list(document["met"])
        return desk

    def _next_fault(self, call: Call) -> CallFault | None:
        script = self.cloud.faults.calls
        self._met += [0] * (len(script) - len(self._met))
        for number, fault in enumerate(script):
            if not fault.matches(call.operation) or not _concerns(fault, call):
                continue
            if fault.times is not None and self._met[number] >= fault.skip + fault.times:
                continue
            self._met[number] += 1
            self.changed = True
            if self._met[number] > fault.skip:
                return fault
        return None

    def _answer(self, call: Call, fault: CallFault | None) -> Answer:
        if call.token != self._token:
            return _refusal(Refusal(401, "bad_token", "the token is not known"))
        try:
            if fault is not None and (replaced := not_carried_out(fault)) is not None:
                return replaced
            if fault is not None and fault.effect in REFUSALS:
                raise REFUSALS[fault.effect](fault)
            answer = self._operations[call.operation](call, fault)
        except Refusal as refusal:
            return _refusal(refusal)
        return answer if fault is None else garbled(answer, fault)

    def _offers(self, call: Call, fault: CallFault | None) -> Answer:
        return _listed({"offers": [_offer(stock) for stock in self.cloud.stock()]}, fault)

    def _create(self, call: Call, fault: CallFault | None) -> Answer:
        effect = None if fault is None else fault.effect
        delay = fault.seconds if fault is not None and effect in ("accepted", "late") else 0.0
        order = _order(call.params)
        if effect in ("short", "short_errors"):
            told = {"zone": order.zone, "code": "out_of_stock", "message": "none left"}
            return _answer(200, {"machines": [], "errors": [told] * (effect != "short")})
        made, errors = self._make(order, int(call.params.get("count", 1)), delay)
        if effect == "twice":
            made, errors = self._make(order, len(made), delay)
        if effect == "accepted":
            return _answer(202, {"machines": [], "errors": []})
        if effect == "late":
            raise Refusal(504, "timeout", "no answer from within")
        if effect == "unlisted":
            made = []
        return _listed({"machines": made, "errors": errors}, fault, status=201)

    def _make(
        self, order: Order, count: int, delay: float
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """As many as there are; a refusal of the very first one is the whole call's."""
        made: list[dict[str, Any]] = []
        for _ in range(count):
            try:
                machine = self.cloud.create(order, delay)
            except Refusal as refusal:
                if not made:
                    raise
                told = {"zone": order.zone, "code": refusal.code, "message": refusal.message}
                return made, [told]
            made.append(_machine(Sight(machine, machine.state(self.cloud.now), machine.tags)))
        return made, []

    def _find(self, call: Call, fault: CallFault | None) -> Answer:
        found = [_machine(sight) for sight in self.cloud.find(call.target)]
        return _listed({"machines": found, "total": len(found)}, fault)

    def _list(self, call: Call, fault: CallFault | None) -> Answer:
        """One page, which begins after the id in the cursor."""
        cursor = str(call.params.get("cursor", ""))
        known = [_machine(sight) for sight in self.cloud.listing()]
        if fault is not None and fault.effect == "shrunken":
            known = known[round(len(known) * fault.share) :]
        if fault is not None and fault.effect == "page_lost":
            return _answer(200, {"machines": [], "next": None, "total": len(known)})
        rest = [machine for machine in known if machine["id"] > cursor]
        page = rest[: self.cloud.settings.page_size]
        further = page[-1]["id"] if len(rest) > len(page) else None
        return _listed({"machines": page, "next": further, "total": len(known)}, fault)

    def _terminate(self, call: Call, fault: CallFault | None) -> Answer:
        state = self.cloud.terminate(call.target)
        return _answer(202, {"id": call.target, "state": state})

    def _boot_log(self, call: Call, fault: CallFault | None) -> Answer:
        return _answer(200, {"log": self.cloud.boot_log(call.target)})

    def _notices(self, call: Call, fault: CallFault | None) -> Answer:
        now = self.cloud.now
        told = [
            {
                "id": machine.notice_id,
                "machine_id": machine.id,
                "status": "withdrawn" if machine.reclaim_at is None else "pending",
                "seconds_left": max(0.0, (machine.reclaim_at or now) - now),
            }
            for machine in self.cloud.notices()
        ]
        return _listed({"notices": told}, fault)

    def _preempt(self, call: Call, fault: CallFault | None) -> Answer:
        notice = call.params.get("notice")
        self.cloud.reclaim(call.target, None if notice is None else float(notice))
        return _answer(202, {"id": call.target})


def _concerns(fault: CallFault, call: Call) -> bool:
    """A lost page is never the first one."""
    return fault.effect != "page_lost" or bool(call.params.get("cursor"))


def _order(params: Mapping[str, Any]) -> Order:
    try:
        return Order(
            name=str(params["name"]),
            zone=str(params["zone"]),
            machine_type=str(params["machine_type"]),
            market=params["market"],
            tags={str(key): str(value) for key, value in params.get("tags", {}).items()},
            bootstrap=str(params.get("user_data", "")),
            max_price=params.get("max_price"),
            token=str(params.get("token", "")),
        )
    except (KeyError, TypeError, AttributeError) as wrong:
        raise Refusal(400, "invalid_request", f"the order cannot be read: {wrong!r}") from None


def _offer(stock: Stock) -> dict[str, Any]:
    shown = stock.offer.model_dump(mode="json")
    shown |= {"price": money(stock.price), "stock": stock.left, "available": stock.left != 0}
    return shown


def _machine(sight: Sight) -> dict[str, Any]:
    machine = sight.machine
    return {
        "id": machine.id,
        "name": machine.name,
        "tags": sight.tags,
        "state": sight.state,
        "zone": machine.zone,
        "machine_type": machine.machine_type,
        "market": machine.market,
        "gpu_kind": machine.gpu_kind,
        "gpu_count": machine.gpu_count,
        "price": money(machine.price),
        "currency": machine.currency,
        "address": machine.address,
        "created_at": machine.created_at,
    }


def money(micros: int) -> str:
    """As this vendor writes an amount: `0.400000`."""
    return f"{micros // 1_000_000}.{micros % 1_000_000:06d}"


def _listed(document: dict[str, Any], fault: CallFault | None, status: int = 200) -> Answer:
    return _answer(status, document if fault is None else garbled_document(document, fault))


def _refusal(refusal: Refusal) -> Answer:
    headers = {}
    if refusal.retry_after is not None:
        headers["Retry-After"] = f"{refusal.retry_after:g}"
    told = {"error": {"code": refusal.code, "message": refusal.message}}
    return _answer(refusal.status, told, headers)


def _answer(
    status: int, document: dict[str, Any], headers: Mapping[str, str] | None = None
) -> Answer:
    return Answer(status, json.dumps(document).encode(), headers=headers or {})
