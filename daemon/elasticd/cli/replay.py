"""`elasticd replay`: runs a journal through the core again, and hands one on."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from elasticd.cli.common import Commands, add_command, add_config, places
from elasticd.cli.output import print_json, print_lines
from elasticd.errors import UsageError

if TYPE_CHECKING:
    from elasticd.runtime.ledger_journal import JournalEntry
    from elasticd.runtime.replay_report import Report

_GZIP = b"\x1f\x8b"
_LEDGER = b"SQLite format 3\0"


@dataclass(frozen=True, slots=True)
class _Journal:
    """A journal that is open. `size`: entries, as far as is known."""

    name: str
    size: int
    entries: Iterator[JournalEntry]


def add_to(commands: Commands) -> None:
    """Declares the command."""
    parser = add_command(
        commands,
        "replay",
        "runs a journal through the core again",
        "Gives the decision core again all that the controller was told, at the same times, and\n"
        "reports each step at which it decides otherwise than the journal says. Reads only, also\n"
        "beside a running daemon. Exact within one version of the core: what another one decided\n"
        "is skipped, or replayed with --anyway. A life of the controller is replayed from its\n"
        "start; what the journal has lost the beginning of is skipped.\n\n"
        "JOURNAL is a state directory, a ledger's file, or a file made with --export; else the\n"
        "state directory of the configuration.",
        examples=[
            "elasticd replay /var/lib/elasticd",
            "elasticd replay --life 12 --json",
            "elasticd replay --export journal.gz   # to attach to a report; secrets are taken out",
            "elasticd replay journal.gz --anyway   # what would this version have decided?",
        ],
        exits="0 all decided as before · 1 something was decided otherwise · 2 nothing can be "
        "replayed: unreadable, damaged, or decided by another core",
    )
    parser.add_argument("journal", nargs="?", metavar="JOURNAL", help="what to replay")
    add_config(parser)
    parser.add_argument(
        "--life", type=_life, metavar="N", help="only the controller's Nth life (its epoch)"
    )
    parser.add_argument(
        "--anyway", action="store_true", help="also what another version of the core decided"
    )
    parser.add_argument(
        "--show", type=_count, default=10, metavar="N", help="differences to show (default 10)"
    )
    parser.add_argument(
        "--export", metavar="FILE", help="replay nothing; write the journal to FILE to hand it on"
    )
    parser.add_argument("--json", action="store_true", help="the report as JSON")
    parser.set_defaults(call=replay)


def replay(args: argparse.Namespace) -> int:
    """Exit 0: equal, 1: differences, 2: nothing could be replayed, or a part is damaged."""
    place = Path(args.journal) if args.journal else places(args).state_dir
    with _clear_if_edited(place):
        return _done(place, args)


def _done(place: Path, args: argparse.Namespace) -> int:
    with _opened(place) as journal:
        if args.export:
            told = _export(journal, args)
            report = None
        else:
            report = _replay(journal, args)
    if report is None:
        print_lines(told)
        return 0
    return _tell(journal, report, args)


@contextlib.contextmanager
def _clear_if_edited(place: Path) -> Iterator[None]:
    """An export is text that anyone can change, and what may stand in it then has no end. A ledger
    is ours, and each part of it is checked: whatever fails there is a fault of ours."""
    try:
        yield
    except (
        TypeError,
        ValueError,
        ArithmeticError,
        LookupError,
        AttributeError,
        RuntimeError,
    ) as bad:
        if _kind(place) != _GZIP:
            raise
        raise UsageError(
            f"{place}: not as `elasticd replay --export` wrote it ({type(bad).__name__}: {bad}); "
            "export the journal anew, and hand it on unchanged"
        ) from bad


def _replay(journal: _Journal, args: argparse.Namespace) -> Report:
    from elasticd.cli.replay_progress import ReplayProgress
    from elasticd.runtime.replay import Rules
    from elasticd.runtime.replay import replay as run

    with ReplayProgress(journal.size) as progress:
        rules = Rules(anyway=args.anyway, most=args.show)
        return run(_wanted(journal.entries, args.life), rules, progress.show)


def _tell(journal: _Journal, report: Report, args: argparse.Namespace) -> int:
    from elasticd.cli.replay_view import as_json, exit_code, render

    if args.life is not None and not report.lives and not report.skipped:
        raise UsageError(f"{journal.name}: nothing of life {args.life} in this journal")
    if args.json:
        print_json(as_json(report))
    else:
        print_lines(render(journal.name, report))
    return exit_code(report)


def _export(journal: _Journal, args: argparse.Namespace) -> list[str]:
    from elasticd.runtime.journal_files import export

    target = Path(args.export)
    try:
        done = export(_wanted(journal.entries, args.life), journal.size, target)
    except FileExistsError:
        raise UsageError(f"{target} exists; remove it, or name another file") from None
    except OSError as bad:
        raise UsageError(f"{target}: cannot be written ({bad.strerror})") from bad
    hidden = (
        f"{done.hidden} values that look like secrets were hidden"
        if done.hidden
        else ("nothing in it looks like a secret")
    )
    return [
        f"{target}: {done.entries} entries, {done.size / 1e6:.1f} MB; {hidden}.",
        "It does hold names of models, pools and users, addresses of machines, and the last lines "
        "of engines that failed:",
        f"look through it before you hand it on (zcat {target} | less).",
    ]


def _wanted(entries: Iterator[JournalEntry], life: int | None) -> Iterator[JournalEntry]:
    """Of one life only; what is damaged might belong to any."""
    return (e for e in entries if life is None or e.epoch == life or e.damaged)


@contextlib.contextmanager
def _opened(place: Path) -> Iterator[_Journal]:
    """Raises `UsageError` for what is no journal, `LedgerRefused` for one that cannot be read."""
    from elasticd.cli.ledger_peek import peek
    from elasticd.runtime import journal_files as files

    kind = _kind(place)
    if kind == _GZIP:
        try:
            size = files.export_size(place)
        except files.NotAnExport as bad:
            raise UsageError(f"{place}: {bad}") from bad
        yield _Journal(str(place), size, files.export_entries(place))
        return
    with peek(place, history=True) as db:
        yield _Journal(str(place), files.ledger_size(db), files.ledger_entries(db))


def _kind(place: Path) -> bytes:
    """What the first bytes of a file say; nothing for a directory, or for what is not there."""
    if not place.is_file():
        return b""
    try:
        with place.open("rb") as file:
            begin = file.read(len(_LEDGER))
    except OSError as bad:
        raise UsageError(f"{place}: cannot be read ({bad.strerror})") from bad
    for kind in (_GZIP, _LEDGER):
        if begin.startswith(kind):
            return kind
    raise UsageError(
        f"{place}: no journal; name a state directory, its ledger.sqlite, or a file made with "
        "`elasticd replay --export FILE`"
    )


def _life(text: str) -> int:
    if text.isascii() and text.isdigit() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no life: they are numbered from 1")


def _count(text: str) -> int:
    if text.isascii() and text.isdigit():
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no number of differences")
