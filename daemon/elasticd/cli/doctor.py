"""`elasticd doctor`: looks at this machine and says what to do."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from elasticd.cli.common import (
    Commands,
    add_command,
    add_daemon,
    admin_client,
    configuration,
)
from elasticd.cli.examine.finding import Finding, Level, fail, ok, warn
from elasticd.cli.output import paint, print_json, print_lines, width
from elasticd.errors import ElasticdError, UsageError
from elasticd.ops.text_table import Paint, Style, bullet, clean, passage

if TYPE_CHECKING:
    from elasticd.settings.load import Configuration

_STYLES = {Level.OK: Style.GOOD, Level.WARN: Style.BUSY, Level.FAIL: Style.BAD}
_SUBJECT = 14


def add_to(commands: Commands) -> None:
    """Declares the command."""
    parser = add_command(
        commands,
        "doctor",
        "look at this machine and say what to do",
        "Looks at versions, the configuration, ports, GPUs, shared memory and limits, other\n"
        "programs' Ray, the state directory, whether a controller could start with it, the clock,\n"
        "the providers' credentials, the daemon.\n"
        "Reads only. Each line is ok, warn or fail, with what to do.",
        examples=["elasticd doctor", "elasticd doctor --json"],
        exits="0 nothing fails · 1 something fails · 2 wrong usage",
    )
    add_daemon(parser)
    parser.add_argument("--json", action="store_true", help="the findings as JSON")
    parser.set_defaults(call=doctor)


def doctor(args: argparse.Namespace) -> int:
    """Exit 0 when nothing fails, 1 when something does."""
    findings = list(_examined(args))
    if args.json:
        print_json({"findings": [asdict(finding) for finding in findings]})
    else:
        print_lines(_report(findings, width(), paint()))
    return 1 if any(finding.level is Level.FAIL for finding in findings) else 0


def _examined(args: argparse.Namespace) -> Iterator[Finding]:
    """The subjects one after the other; those that need the configuration only if there is one."""
    from elasticd.cli.examine import daemon, devices, limits, state, strangers, versions

    yield from _safely("versions", versions.examine)
    config, told = _configuration(args)
    yield from told
    answer = daemon.ask(admin_client(args)) if args.socket or config else None
    pid = (answer.get("controller") or {}).get("pid") if isinstance(answer, dict) else None
    yield from _safely("gpus", lambda: devices.examine(pid))
    recorded = state.last_recorded(config.state_dir) if config else None
    yield from _safely("limits", lambda: limits.examine(recorded))
    yield from _safely("neighbours", strangers.examine)
    if config is not None:
        yield from _of_configuration(config, answers=isinstance(answer, dict))
    if answer is not None:
        yield from _safely("daemon", lambda: daemon.examine(answer))


def _of_configuration(config: Configuration, *, answers: bool) -> Iterator[Finding]:
    from elasticd.cli.examine import access, cluster, network, start, state

    yield from _safely("in step", lambda: cluster.examine(config))
    yield from _safely("ports", lambda: network.examine(config))
    yield from _safely("state", lambda: state.examine(config.state_dir))
    yield from _safely("start", lambda: start.examine(config, answers=answers))
    yield from _safely("providers", lambda: access.examine(config))


def _configuration(args: argparse.Namespace) -> tuple[Configuration | None, list[Finding]]:
    """What can be used of it, and what is wrong: with problems of this host alone, all of it."""
    from elasticd.settings.load import BadConfiguration

    found: list[Finding] = []
    try:
        config = configuration(args, look_on_host=True)
    except BadConfiguration as bad:
        for problem in bad.problems:
            line = f":{problem.line}" if problem.line else ""
            where = f"{bad.path}{line}: {problem.path}"
            found.append(fail("configuration", f"{where}: {problem.message}", "correct it"))
        try:
            config = configuration(args)
        except UsageError:
            return None, found
    except UsageError as bad:
        return None, [fail("configuration", str(bad), "name one, then look again")]
    else:
        found.append(ok("configuration", f"{config.path} has no problems"))
    warnings: Iterable[Any] = getattr(config, "warnings", ())
    found += [warn("configuration", f"{w.path}: {w.message}", "see above") for w in warnings]
    return config, found


def _safely(subject: str, look: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """One subject. A look that itself goes wrong is a finding, and the others go on."""
    try:
        yield from look()
    except (ElasticdError, OSError, ValueError, ArithmeticError, LookupError) as bad:
        advice = "run this as the daemon's user; if it stays, report it"
        yield warn(subject, f"could not be looked at: {bad!r}", advice)


def _report(findings: list[Finding], columns: int, colour: Paint) -> Iterator[str]:
    for finding in findings:
        mark = f"{finding.level.value:<4}  {finding.subject:<{_SUBJECT}}"
        first, *rest = passage(mark, finding.text, columns)
        yield colour(first[:4], _STYLES[finding.level]) + first[4:]
        yield from rest
        if finding.advice:
            yield from bullet(" " * len(mark), f"→ {clean(finding.advice)}", columns)
    counts = {level: sum(f.level is level for f in findings) for level in Level}
    yield ""
    yield ", ".join(f"{count} {level.value}" for level, count in counts.items())
