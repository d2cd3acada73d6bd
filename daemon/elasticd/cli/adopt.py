"""`elasticd adopt`: takes over machines of this cluster name that another ledger left behind."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from elasticd.cli.asking import agreed, must_be_askable
from elasticd.cli.common import (
    Commands,
    add_command,
    add_daemon,
    admin_client,
    asked_by,
    must_act,
    named,
)
from elasticd.cli.output import paint, print_json, print_lines, say, tell, width
from elasticd.errors import ElasticdError, UsageError
from elasticd.nearest import did_you_mean
from elasticd.ops.durations import age
from elasticd.ops.status_money import money, rent
from elasticd.ops.status_pools import foreign_machines
from elasticd.ops.text_table import Column, Row, bullet, clean, table

Machine = dict[str, Any]

_COLUMNS = (
    Column("Machine", least=12),
    Column("Ledger", least=8),
    Column("Node", least=14),
    Column("Offering", least=14),
    Column("Age", right=True),
    Column("Price/h", right=True),
    Column("So far", right=True),
)
_WARNING = (
    "another elasticd with this cluster name may be alive and look after them: then two would use "
    "and end the same machines. Make sure that it is not, or give it another `cluster`."
)
_BECOMES = (
    "each has its pool's boot_timeout to join this cluster and counts as a machine of its pool; "
    "one that does not join is ended, as is one that does not tell its node"
)


def add_to(commands: Commands) -> None:
    """Declares the command."""
    parser = add_command(
        commands,
        "adopt",
        "take over machines that another ledger left behind",
        "Shows the machines that carry this cluster's name and another ledger's id, with what\n"
        "they cost, and after a question makes them this daemon's own: what joins is used, what\n"
        "does not is ended. As long as there are any, nothing is bought or ended in their pool.",
        examples=["elasticd adopt", "elasticd adopt --ledger k3f9a2b1 --yes"],
        exits=(
            "0 taken over, or nothing to adopt · 1 you said no, no machine of that ledger, or it\n"
            "cannot be done now · 2 several to choose from, or nobody to ask ·\n"
            "3 daemon not reachable"
        ),
    )
    add_daemon(parser)
    parser.add_argument(
        "--ledger", metavar="ID", type=named("a ledger's id"), help="whose machines; with several"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask; needed without a terminal")
    parser.add_argument("--json", action="store_true", help="what was taken over, as JSON")
    parser.set_defaults(call=adopt)


def adopt(args: argparse.Namespace) -> int:
    """Exit 0 when they are taken over or there are none, 1 when the user said no."""
    client = admin_client(args)
    status = client.status()
    must_act(status)
    found = foreign_machines(status)
    if not found and not args.ledger:
        return _nothing(status, as_json=args.json)
    if args.ledger:
        _must_be_there(found, args.ledger, status)
    if not args.json:
        print_lines(_shown(found))
    ledger_id = _chosen(found, args.ledger)
    machines = [machine for machine in found if machine["ledger_id"] == ledger_id]
    if not args.json:
        told = [*bullet("!", _warning(ledger_id), width()), *bullet("-", _BECOMES, width())]
        print_lines(["", *told])
    must_be_askable("elasticd adopt", "takes machines over", args.yes)
    question = f"Take over {_many(machines)} of ledger {ledger_id}?"
    if not args.yes and not agreed(question):
        tell("nothing was adopted")
        return 1
    client.adopt(ledger_id, asked_by())
    if args.json:
        print_json({"adopted": ledger_id, "machines": machines})
    else:
        say(
            f"{_many(machines)} of ledger {ledger_id} {'is' if len(machines) == 1 else 'are'} this "
            "daemon's from now on; `elasticd status` shows what becomes of "
            f"{'it' if len(machines) == 1 else 'them'}"
        )
    return 0


def _nothing(status: Mapping[str, Any], *, as_json: bool) -> int:
    """Exit 0 if every pool has told what it has."""
    silent = _unlisted(status)
    if as_json:
        print_json({"adopted": None, "machines": [], "not_listed": silent})
    elif silent:
        tell(
            f"no machine of another ledger is known yet, and these pools have not told what they "
            f"have: {', '.join(silent)}; see `elasticd status`, and ask again once they have"
        )
    else:
        say("no machine of another ledger is listed; there is nothing to adopt")
    return 1 if silent else 0


def _unlisted(status: Mapping[str, Any]) -> list[str]:
    return [str(p["name"]) for p in status.get("pools", ()) if p.get("listed_age") is None]


def _must_be_there(found: Sequence[Machine], asked: str, status: Mapping[str, Any]) -> None:
    """Raises `ElasticdError` where no machine is of that ledger; which there are, it says."""
    owners = _owners(found)
    if any(owner.startswith(asked) for owner in owners):
        return
    if any(asked in (pool.get("adopted") or ()) for pool in status.get("pools", ())):
        raise ElasticdError(f"ledger {asked!r} has been adopted already; nothing was adopted now")
    seen = f"machines are here of: {', '.join(owners)}" if owners else "of no other one either"
    silent = _unlisted(status)
    later = f"; not listed yet: {', '.join(silent)}" if silent else ""
    raise ElasticdError(
        f"no machine here carries the ledger id {asked!r}; {seen}"
        f"{did_you_mean(asked, owners)}{later}; nothing was adopted"
    )


def _owners(found: Sequence[Machine]) -> list[str]:
    return sorted({str(machine["ledger_id"]) for machine in found})


def _warning(ledger_id: str) -> str:
    """What must be made sure of before: nobody can take it back."""
    from elasticd.core.reaper import RIVAL

    if not ledger_id.endswith(RIVAL):
        return _WARNING
    return (
        f"{ledger_id.removesuffix(RIVAL)} is known here, and another elasticd has gone on under "
        "its name since: one with a copy of this state directory, or the former owner of what was "
        f"adopted. {_WARNING}"
    )


def _chosen(found: Sequence[Machine], asked: str | None) -> str:
    """The ledger that is meant: named, by an unmistakable beginning, or the only one."""
    owners = _owners(found)
    meant = [owner for owner in owners if owner == asked] or [
        owner for owner in owners if owner.startswith(asked or "")
    ]
    if len(meant) == 1:
        return meant[0]
    raise UsageError(f"several ledgers left machines: {', '.join(meant)}; choose: --ledger ID")


def _shown(machines: Sequence[Machine]) -> Iterator[str]:
    rows = [_row(machine) for machine in machines]
    yield from table(_COLUMNS, rows, width(), paint())
    yield f"{_many(machines)}, {rent(machines)}"


def _row(machine: Machine) -> Row:
    price, alive = machine.get("price_micros"), machine.get("age")
    currency = machine.get("currency") or ""
    spent = None if price is None or alive is None else int(price * alive / 3600.0)
    cells = (
        clean(machine["instance_id"]),
        clean(machine["ledger_id"]),
        clean(machine.get("node_id")) or "?",
        clean(machine.get("offering")) or clean(machine.get("pool")),
        age(alive),
        "?" if price is None else money(price, currency),
        "?" if spent is None else money(spent, currency),
    )
    return Row(cells)


def _many(machines: Sequence[Machine]) -> str:
    return "1 machine" if len(machines) == 1 else f"{len(machines)} machines"
