"""The way of `elasticd leaks`: lists, then the ledger, a report, and the end of what is ours.

Where the ledger cannot be read, a running daemon is asked what it holds: then its machines are
told as what they are, and nothing is ended.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import structlog

from elasticd.cli.asking import agreed
from elasticd.cli.common import configuration
from elasticd.cli.leak_absent import not_listed
from elasticd.cli.leak_daemon import Told, as_the_daemon_says, ask_daemon
from elasticd.cli.leak_ending import Ending
from elasticd.cli.leak_former import past_of
from elasticd.cli.leak_ledger import LedgerView, read_ledger, told_by_daemon
from elasticd.cli.leak_past import Former, former_names
from elasticd.cli.leak_report import Report, many, outcome, report_json, told
from elasticd.cli.leak_survey import OpenPools, Survey, open_pools
from elasticd.cli.leak_verdict import Found, Verdict, judge
from elasticd.cli.output import print_json, print_lines, say, tell
from elasticd.provider import Instance
from elasticd.settings.configuration import Configuration
from elasticd.settings.fleet import place_of


async def hunt(args: argparse.Namespace) -> int:
    """Asks, tells, ends if asked to; the exit code."""
    with _silent_logs():
        return await _hunt(args)


@contextlib.contextmanager
def _silent_logs() -> Iterator[None]:
    """What the wrapper of a provider logs is said in the report; the output is ours alone."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.configure(**before)


async def _hunt(args: argparse.Namespace) -> int:
    config = configuration(args)
    ledger_id = read_ledger(config.state_dir).ledger_id
    places = {pool.name: place_of(pool, config) for pool in config.settings.node_pools}
    former = former_names(config.state_dir, config.settings.cluster, places)
    async with open_pools(config, ledger_id, former) as pools:
        report = await _look(args, config, pools, former, ledger_id)
        if not args.json:
            print_lines(told(report, everything=args.all, ending=args.terminate))
        if args.terminate:
            report = await _terminate(args, config, pools, report)
    if args.json:
        print_json(report_json(report, args.all))
    elif args.terminate:
        print_lines(outcome(report))
    return 0 if report.fine else 1


async def _look(
    args: argparse.Namespace,
    config: Configuration,
    pools: OpenPools,
    former: Sequence[Former],
    ledger_id: str,
) -> Report:
    """The lists first and the ledger after them: no intention is younger than a list."""
    asked_at = time.time()
    survey = await pools.survey()
    status = await asyncio.to_thread(ask_daemon, args, config)
    ledger = await asyncio.to_thread(read_ledger, config.state_dir)
    problems = tuple(_ledger_problems(config, ledger, ledger_id, status))
    may_end = not ledger.problem
    if ledger.problem:
        ledger = _instead_of(ledger, status)
    found = judge(_ours_under_former(config, pools, survey, ledger), ledger, time.time())
    same = ledger.ledger_id and status.status.get("ledger_id") == ledger.ledger_id
    said = status.status if same else {}
    past = past_of(config, former, pools.asked, survey.listed, ledger)
    settled = {label: told for label, told in survey.listed.items() if label not in past.unknown}
    absent = tuple(not_listed(ledger, settled, asked_at, daemon_acts=not status.daemon.silence))
    return Report(
        tuple(as_the_daemon_says(one, said) for one in found),
        {**survey.unknown, **past.unknown},
        (*problems, *past.problems, *absent),
        status.daemon,
        asked=tuple(survey.listed),
        not_asked=past.not_asked,
        may_end=may_end,
    )


def _instead_of(ledger: LedgerView, status: Told) -> LedgerView:
    """Whose the machines are, by the daemon that runs; if it does not tell, that is not known."""
    known = told_by_daemon(status.status)
    if known is not None:
        return known
    return replace(ledger, missing=ledger.missing and not status.daemon.runs)


def _ours_under_former(
    config: Configuration, pools: OpenPools, survey: Survey, ledger: LedgerView
) -> dict[str, Sequence[Instance]]:
    """Another cluster's name may be another one's by now: of its machines only ours are told."""
    cluster = config.settings.cluster
    elsewhere = {one.label for one in pools.asked if one.name.cluster != cluster}
    return {
        label: [
            one
            for one in machines
            if label not in elsewhere
            or (one.ledger_id is not None and ledger.is_ours(one.ledger_id))
            or ledger.holder(one) is not None
        ]
        for label, machines in survey.listed.items()
    }


def _ledger_problems(
    config: Configuration, ledger: LedgerView, ledger_id: str, status: Told
) -> Iterator[str]:
    runs = status.daemon.runs
    if ledger.problem and runs and not status.daemon.silence:
        path = config.state_dir / "ledger.sqlite"
        away = f"{path} is not there although the daemon runs: put it back where it was"
        yield (
            "nothing is ended, and whose machines are listed is what the running daemon says: "
            f"its ledger cannot be read. {away if ledger.missing else ledger.problem}"
        )
    elif ledger.problem and (runs or not ledger.missing):
        yield f"nothing is ended: {ledger.problem}"
    elif ledger_id != ledger.ledger_id:
        yield "the ledger was replaced while the providers were asked; look again"
    cluster = config.settings.cluster
    if ledger.cluster and ledger.cluster != cluster:
        yield (
            f"the ledger is of cluster {ledger.cluster!r} and the configuration says {cluster!r}: "
            "the daemon sees to no machine under the old name; put it back"
        )


async def _terminate(
    args: argparse.Namespace, config: Configuration, pools: OpenPools, report: Report
) -> Report:
    ours = report.of(Verdict.LEAK)
    if not ours:
        return replace(report, kept={})
    if not report.may_end:
        why = "the ledger cannot be read, so it is not certain"
        return replace(report, kept={_id(one): why for one in ours})
    alone = {_id(one): one.left_alone for one in ours if one.left_alone}
    ours = [one for one in ours if not one.left_alone]
    if not ours:
        return replace(report, kept=alone)
    question = f"End {many(ours)} of ours that no node stands for?"
    if not args.yes and not agreed(question):
        return replace(report, kept={**alone, **{_id(one): "you said no" for one in ours}})
    beside: Callable[[str], None] = partial(tell, who="") if args.json else say
    ending = Ending(pools.providers, config.state_dir, report.found, beside)
    came_of_it = await ending.end(ours)
    ended = tuple(name for name, trouble in came_of_it.items() if not trouble)
    return replace(
        report,
        found=tuple(one for one in report.found if one.instance.instance_id not in ended),
        ended=ended,
        kept={**alone, **{name: trouble for name, trouble in came_of_it.items() if trouble}},
    )


def _id(one: Found) -> str:
    return one.instance.instance_id
