"""`elasticd check`: validates the configuration offline."""

from __future__ import annotations

import argparse
import json

from elasticd.cli.common import Commands, add_config, config_path
from elasticd.errors import UsageError


def add_to(commands: Commands) -> None:
    """Declares the command."""
    parser = commands.add_parser("check", help="validate the configuration, offline")
    add_config(parser)
    parser.add_argument("--json", action="store_true", help="problems as JSON")
    parser.set_defaults(call=check)


def check(args: argparse.Namespace) -> int:
    """Exit 0 for a configuration that can be used, 2 with one line for each problem."""
    from elasticd.settings.load import BadConfiguration, load

    path = config_path(args)
    if not args.json:
        settings = load(path).settings
        models = ", ".join(model.name for model in settings.models)
        pools = ", ".join(f"{pool.name} ({pool.provider})" for pool in settings.node_pools)
        print(f"{path}: fine; cluster {settings.cluster}, models {models}, pools {pools}")
        return 0
    problems: list[dict[str, object]] = []
    try:
        load(path)
    except BadConfiguration as bad:
        problems = [{"line": p.line, "path": p.path, "message": p.message} for p in bad.problems]
    except UsageError as bad:
        problems = [{"line": None, "path": "", "message": str(bad)}]
    print(json.dumps({"file": str(path), "problems": problems}, indent=2, ensure_ascii=False))
    return UsageError.exit_code if problems else 0
