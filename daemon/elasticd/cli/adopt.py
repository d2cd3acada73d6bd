"""`elasticd adopt`: takes over machines of this cluster name that another ledger left behind."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from elasticd.cli.asking import agreed, must_be_askable
from elasticd.cli.common import Commands, add_command, add_daemon, admin_client, asked_by, named
from elasticd.cli.output import paint, print_json, print_lines, width
from elasticd.errors import UsageError
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
            "0 taken over, or nothing to adopt · 1 you said no, or it cannot be done now ·\n"
            "2 no such ledger, several to choose from, or nobody to ask · 3 daemon not reachable"
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
    found = foreign_machines(client.status())
    if not found and not args.ledger:
        if args.json:
            print_json({"adopted": None, "machines": []})
        else:
            print("no machine of another ledger is listed; there is nothing to adopt")
        return 0
    if not args.json:
        print_lines(_shown(found))
    ledger_id = _chosen(found, args.ledger)
    machines = [machine for machine in found if machine["ledger_id"] == ledger_id]
    if not args.json:
        print_lines(["", *bullet("!", _WARNING, width()), *bullet("-", _BECOMES, width())])
    must_be_askable("elasticd adopt", "takes machines over", args.yes)
    question = f"Take over {_many(machines)} of ledger {ledger_id}?"
    if not args.yes and not agreed(question):
        print("elasticd: nothing was adopted", file=sys.stderr)
        return 1
    client.adopt(ledger_id, asked_by())
    if args.json:
        print_json({"adopted": ledger_id, "machines": machines})
    else:
        print(
            f"{_many(machines)} of ledger {ledger_id} {'is' if len(machines) == 1 else 'are'} this "
            "daemon's from now on; `elasticd status` shows what becomes of "
            f"{'it' if len(machines) == 1 else 'them'}"
        )
    return 0


def _chosen(found: Sequence[Machine], asked: str | None) -> str:
    """The ledger that is meant: named, by an unmistakable beginning, or the only one."""
    owners = sorted({str(machine["ledger_id"]) for machine in found})
    meant = [owner for owner in owners if owner == asked] or [
        owner for owner in owners if owner.startswith(asked or "")
    ]
    if len(meant) == 1:
        return meant[0]
    if meant:
        raise UsageError(f"several ledgers left machines: {', '.join(meant)}; choose: --ledger ID")
    hint = did_you_mean(asked or "", owners)
    there = f"; ledgers with machines here: {', '.join(owners) or 'none'}"
    raise UsageError(f"no machine of ledger {asked!r} is listed{hint or there}")


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
