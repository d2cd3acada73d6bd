"""`elasticd check`: validates the configuration offline, and shows what it comes to."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elasticd.cli.common import Commands, add_config, config_path
from elasticd.cli.output import print_json, say, tell
from elasticd.errors import UsageError

if TYPE_CHECKING:
    from elasticd.settings.document import Problem
    from elasticd.settings.load import Configuration


def add_to(commands: Commands) -> None:
    """Declares the command."""
    parser = commands.add_parser("check", help="validate the configuration, offline")
    add_config(parser)
    parser.add_argument("--json", action="store_true", help="problems and warnings as JSON")
    parser.add_argument(
        "--show",
        action="store_true",
        help="print the effective configuration: defaults filled in, secrets as references",
    )
    parser.set_defaults(call=check)


def check(args: argparse.Namespace) -> int:
    """Exit 0 for a configuration that can be used, 1 with warnings alone, 2 with problems."""
    from elasticd.settings.load import load

    path = config_path(args)
    if args.json:
        return _as_json(path, show=args.show)
    configuration = load(path)
    if args.show:
        from elasticd.settings.show import show

        say(show(configuration).rstrip("\n"))
    else:
        say(_in_short(path, configuration))
    for warning in configuration.warnings:
        tell(f"warning: {warning.where(path)}", who="")
    return 1 if configuration.warnings else 0


def _in_short(path: Path, configuration: Configuration) -> str:
    settings, count = configuration.settings, len(configuration.warnings)
    models = ", ".join(model.name for model in settings.models)
    pools = ", ".join(f"{pool.name} ({pool.provider})" for pool in settings.node_pools)
    fine = f"usable, with {count} warning{'s' * (count > 1)}" if count else "fine"
    return f"{path}: {fine}; cluster {settings.cluster}, models {models}, pools {pools}"


def _as_json(path: Path, *, show: bool) -> int:
    from elasticd.settings.load import BadConfiguration, load
    from elasticd.settings.show import effective

    answer: dict[str, Any] = {"file": str(path), "problems": [], "warnings": []}
    code = 0
    try:
        configuration = load(path)
    except BadConfiguration as bad:
        answer["problems"], code = _rows(path, bad.problems), UsageError.exit_code
    except UsageError as bad:
        row = {"file": str(path), "line": None, "path": "", "message": str(bad)}
        answer["problems"], code = [row], UsageError.exit_code
    else:
        answer["warnings"] = _rows(path, configuration.warnings)
        code = 1 if configuration.warnings else 0
        if show:
            answer["configuration"] = effective(configuration)
    print_json(answer)
    return code


def _rows(path: Path, problems: Iterable[Problem]) -> list[dict[str, Any]]:
    return [
        {"file": str(path), "line": p.line, "path": p.path, "message": p.message} for p in problems
    ]
