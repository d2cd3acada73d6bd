"""Waits for what becomes of a node that was told to go, and tells it: for `drain` and `drill`."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

from elasticd.cli.admin_client import AdminClient
from elasticd.cli.output import print_json, say, tell
from elasticd.cli.spinner import Spinner
from elasticd.errors import NotReachable
from elasticd.ops.status_departures import counts, departed, numbers
from elasticd.ops.text_table import clean

_POLL = 0.5
_SETTLED = 3.0
"""Seconds without a change after which the counts are the last: the gateway reports every two."""

_LONGEST = 1800.0
"""Seconds beyond the node's own time for replacements to serve."""

_SILENT = 60.0
"""Seconds without an answer of the daemon until it is given up."""

_REPEAT = 15.0

_LEFT = ("terminating", "gone")


def add_waiting(parser: argparse.ArgumentParser) -> None:
    """Declares how to do without it."""
    parser.add_argument(
        "--no-wait", action="store_true", help="return at once, without what becomes of it"
    )
    parser.add_argument("--json", action="store_true", help="the outcome as JSON")


def tell_outcome(
    args: argparse.Namespace, client: AdminClient, answer: Mapping[str, Any], patience: float
) -> int:
    """Waits and prints; `answer`: the daemon's to what was asked. Exit 0: nothing was lost.

    `patience`: seconds that the node itself may take.
    """
    if args.no_wait:
        if args.json:
            print_json(answer)
        return 0
    node_id = str(answer.get("node_id", args.node))
    try:
        with nullcontext() if args.json else Spinner(say, repeat=_REPEAT) as spinner:
            waiting = spinner.waiting if spinner is not None else _silently
            outcome, complete = _follow(client, node_id, patience + _LONGEST, waiting)
    except KeyboardInterrupt:
        tell(f"interrupted; {node_id} goes all the same, `elasticd status` shows it")
        raise
    if args.json:
        print_json({**answer, "complete": complete, "outcome": outcome})
    else:
        say(sentence(node_id, outcome, complete))
    lost = outcome is not None and (outcome.get("lost") or outcome.get("partial"))
    return 0 if complete and not lost else 1


def _silently(_what: str) -> None:
    """Whoever reads JSON reads nothing else."""


def _follow(
    client: AdminClient, node_id: str, patience: float, waiting: Callable[[str], None]
) -> tuple[dict[str, Any] | None, bool]:
    """The departure as it was told last (`None`: there was nothing that served), and whether it
    has come to its end."""
    began = changed = heard = time.monotonic()
    last: dict[str, Any] | None = None
    while time.monotonic() - began < patience:
        try:
            status = client.status()
            heard = time.monotonic()
        except NotReachable:
            if time.monotonic() - heard > _SILENT:
                raise
            waiting("the daemon to answer")
            time.sleep(_POLL)
            continue
        outcome = _departure(status, node_id, heard - began)
        if outcome is None and _phase(status, node_id) in _LEFT:
            return None, True
        if outcome is not None:
            if last is None or numbers(outcome) != numbers(last):
                changed = heard
            last = outcome
            if _is_over(outcome) and heard - changed >= _SETTLED:
                return outcome, True
        waiting(_waits_for(node_id, outcome))
        time.sleep(_POLL)
    return last, False


def _departure(status: Mapping[str, Any], node_id: str, elapsed: float) -> dict[str, Any] | None:
    """That of this time: an earlier one of the same node may have been taken back."""
    for told in status.get("departures") or ():
        over = told.get("taken_back") and told["age"] > elapsed + 2 * _POLL
        if told.get("node_id") == node_id and not over:
            return dict(told)
    return None


def _phase(status: Mapping[str, Any], node_id: str) -> str:
    """Empty: not known."""
    phases = [n["phase"] for n in status.get("nodes", ()) if n.get("id") == node_id]
    return phases[0] if phases else "gone"


def _is_over(outcome: Mapping[str, Any]) -> bool:
    if outcome.get("taken_back"):
        return True
    return outcome.get("ended_after") is not None and outcome.get("whole_after") is not None


def _waits_for(node_id: str, outcome: Mapping[str, Any] | None) -> str:
    if outcome is None:
        return f"{node_id} to go"
    if outcome.get("ended_after") is None:
        return f"what runs on {node_id}: {counts(outcome)}"
    return f"full strength of {', '.join(map(clean, outcome['models']))}: {counts(outcome)}"


def sentence(node_id: str, outcome: Mapping[str, Any] | None, complete: bool) -> str:
    """What became of it, for people."""
    if outcome is not None:
        return departed(outcome)
    if complete:
        return f"{node_id}: nothing served there; its machine is given back"
    return f"{node_id} has not gone; `elasticd events` tells more"
