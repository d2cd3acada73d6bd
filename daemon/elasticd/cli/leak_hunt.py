"""The way of `elasticd leaks`: lists, then the ledger, a report, and the end of what is ours."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import structlog

from elasticd.cli.admin_client import AdminClient
from elasticd.cli.asking import agreed
from elasticd.cli.common import configuration
from elasticd.cli.leak_ending import Ending
from elasticd.cli.leak_ledger import LedgerView, read_ledger
from elasticd.cli.leak_report import Daemon, Report, many, outcome, report_json, told
from elasticd.cli.leak_survey import OpenPools, open_pools
from elasticd.cli.leak_verdict import Found, Verdict, judge
from elasticd.cli.output import print_json, print_lines
from elasticd.errors import ElasticdError, NotReachable
from elasticd.ops.durations import age
from elasticd.settings.configuration import Configuration

_ASK_DAEMON = 3.0
"""Seconds."""


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
    async with open_pools(config, ledger_id) as pools:
        asking = asyncio.create_task(asyncio.to_thread(_ask_daemon, args, config))
        report = await _look(config, pools, ledger_id, await asking)
        if not args.json:
            print_lines(told(report, everything=args.all, ending=args.terminate))
        if args.terminate:
            report = await _terminate(args, config, pools, report)
    if args.json:
        print_json(report_json(report, args.all))
    elif args.terminate:
        print_lines(outcome(report))
    return 0 if report.fine else 1


async def _look(config: Configuration, pools: OpenPools, ledger_id: str, daemon: Daemon) -> Report:
    """The lists first and the ledger after them: no intention is younger than a list."""
    survey = await pools.survey()
    ledger = await asyncio.to_thread(read_ledger, config.state_dir)
    found = judge(survey.listed, ledger, time.time())
    explained = tuple(_with_its_end(one, daemon) for one in found)
    unknown = {**survey.unknown, **_unasked(config, ledger)}
    problems = tuple(_ledger_problems(config, ledger, ledger_id))
    return Report(explained, unknown, problems, daemon)


def _with_its_end(one: Found, daemon: Daemon) -> Found:
    left = daemon.ends.get(one.instance.instance_id)
    if one.verdict is not Verdict.LEAK or left is None:
        return one
    return replace(one, why=f"{one.why}; the daemon ends it in {age(left)}")


def _unasked(config: Configuration, ledger: LedgerView) -> dict[str, str]:
    """Pools that the ledger has machines in and the configuration has not."""
    names = {pool.name for pool in config.settings.node_pools}
    gone = sorted({str(node["pool"]) for node in ledger.living()} - names)
    return {
        pool: f"not configured any more, and the ledger has machines there: "
        f"{', '.join(str(n['id']) for n in ledger.living() if n['pool'] == pool)}; put it back"
        for pool in gone
    }


def _ledger_problems(config: Configuration, ledger: LedgerView, ledger_id: str) -> Iterator[str]:
    if ledger.problem and not ledger.missing:
        yield f"nothing is ended: {ledger.problem}"
    elif ledger_id != ledger.ledger_id:
        yield "the ledger was replaced while the providers were asked; look again"
    cluster = config.settings.cluster
    if ledger.cluster and ledger.cluster != cluster:
        yield (
            f"the ledger is of cluster {ledger.cluster!r} and the configuration says {cluster!r}: "
            "machines under the old name are not listed; put it back, then look again"
        )


def _ask_daemon(args: argparse.Namespace, config: Configuration) -> Daemon:
    socket = Path(args.socket) if args.socket else config.admin_socket
    try:
        status = AdminClient(socket, _ASK_DAEMON).status()
    except ElasticdError as silent:
        nobody = isinstance(silent.__cause__, FileNotFoundError | ConnectionRefusedError)
        return Daemon(str(silent), not (nobody and isinstance(silent, NotReachable)), {})
    ends = {
        str(orphan["instance_id"]): float(orphan["seconds_left"])
        for pool in status.get("pools", ())
        for orphan in pool.get("orphans") or ()
        if isinstance(orphan, dict) and orphan.get("seconds_left") is not None
    }
    return Daemon("", True, ends)


async def _terminate(
    args: argparse.Namespace, config: Configuration, pools: OpenPools, report: Report
) -> Report:
    ours = report.of(Verdict.LEAK)
    if not ours:
        return replace(report, kept={})
    question = f"End {many(ours)} of ours that no node stands for?"
    if not args.yes and not agreed(question):
        return replace(report, kept={one.instance.instance_id: "you said no" for one in ours})
    stream = sys.stderr if args.json else sys.stdout
    ending = Ending(
        pools.providers,
        config.state_dir,
        report.found,
        lambda text: print(text, file=stream, flush=True),
    )
    came_of_it = await ending.end(ours)
    ended = tuple(name for name, trouble in came_of_it.items() if not trouble)
    return replace(
        report,
        found=tuple(one for one in report.found if one.instance.instance_id not in ended),
        ended=ended,
        kept={name: trouble for name, trouble in came_of_it.items() if trouble},
    )
