"""Found machines for people and for programs: what they are, and what they cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from elasticd.cli.leak_verdict import Found, Verdict
from elasticd.ops.durations import age
from elasticd.ops.status_money import money, rent
from elasticd.ops.text_table import Column, Paint, Row, Style, clean, table

_COLUMNS = (
    Column("What"),
    Column("Machine", least=12),
    Column("Pool", least=8),
    Column("Zone", least=6),
    Column("Type", least=8),
    Column("Market"),
    Column("Age", right=True),
    Column("Price/h", right=True),
    Column("So far", right=True),
)
_STYLES = {Verdict.KNOWN: Style.QUIET, Verdict.UNMARKED: Style.BUSY, Verdict.UNKNOWN: Style.BUSY}


def machines(found: Sequence[Found], now: float, width: int, paint: Paint) -> Iterator[str]:
    """A table, the worst first."""
    order = [*list(Verdict)[1:], Verdict.KNOWN]
    ranked = sorted(found, key=lambda one: (order.index(one.verdict), one.pool))
    yield from table(_COLUMNS, [_row(one, now) for one in ranked], width, paint)


def cost(found: Sequence[Found], now: float) -> str:
    """`1.20 USD/h, 14.30 USD so far`; what is not known is said."""
    priced = [as_json(one, now) for one in found]
    sums: dict[str, int] = {}
    unknown = 0
    for one in priced:
        if one["cost_micros"] is None:
            unknown += 1
        else:
            sums[one["currency"]] = sums.get(one["currency"], 0) + one["cost_micros"]
    so_far = [money(micros, currency) for currency, micros in sorted(sums.items())]
    so_far += [f"not known of {unknown}"] if unknown else []
    return f"{rent(priced)}; so far {' + '.join(so_far) or 'nothing'}"


def as_json(one: Found, now: float) -> dict[str, Any]:
    """Everything known of one machine; what is not known is null."""
    instance, offering = one.instance, one.instance.offering
    price = one.price
    alive = None if instance.launched_at is None else max(0.0, now - instance.launched_at)
    spent = None if price is None or alive is None else int(price[0] * alive / 3600.0)
    return {
        "verdict": one.verdict.value,
        "why": one.why,
        "pool": one.pool,
        "instance_id": instance.instance_id,
        "node_id": instance.node_id,
        "ledger_id": instance.ledger_id,
        "state": instance.state.value,
        "zone": offering.zone if offering is not None else None,
        "machine_type": offering.machine_type if offering is not None else None,
        "market": offering.market.value if offering is not None else None,
        "launched_at": instance.launched_at,
        "age": alive,
        "price_micros": None if price is None else price[0],
        "currency": None if price is None else price[1],
        "cost_micros": spent,
    }


def _row(one: Found, now: float) -> Row:
    told = as_json(one, now)
    price, spent = told["price_micros"], told["cost_micros"]
    cells = (
        one.verdict.value,
        clean(one.instance.instance_id),
        clean(one.pool),
        clean(told["zone"]) or "?",
        clean(told["machine_type"]) or "?",
        str(told["market"] or "?").replace("_", "-"),
        age(told["age"]),
        "?" if price is None else money(price, told["currency"]),
        "?" if spent is None else money(spent, told["currency"]),
    )
    return Row(cells, ((0, _STYLES.get(one.verdict, Style.BAD)),), clean(one.why))
