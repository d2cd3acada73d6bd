"""`elasticd keygen`: a new API key of the gateway, and what the configuration holds of it."""

from __future__ import annotations

import argparse
import hashlib
import re
import secrets

from elasticd.cli.common import Commands
from elasticd.cli.output import print_json, say
from elasticd.errors import UsageError

_BYTES = 32
_PREFIX = "sk-elasticd-"
# As the configuration wants names; asking it here would import all of it.
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")


def add_to(commands: Commands) -> None:
    """Declares the command."""
    parser = commands.add_parser(
        "keygen", help="make an API key and its line for the configuration"
    )
    parser.add_argument("--name", metavar="N", default="client", help="whose key it is")
    parser.add_argument("--json", action="store_true", help="key and hash as JSON")
    parser.set_defaults(call=keygen)


def keygen(args: argparse.Namespace) -> int:
    """Prints both; nothing is stored, so the key is seen this once."""
    name: str = args.name
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"--name: {name!r} cannot stand in the configuration; use lower-case letters, digits "
            "and dashes, at most 40"
        )
    key = _PREFIX + secrets.token_urlsafe(_BYTES)
    digest = f"sha256:{hashlib.sha256(key.encode()).hexdigest()}"
    if args.json:
        print_json({"name": name, "key": key, "hash": digest}, one_line=True)
        return 0
    say("For the client, shown this once:")
    say(f"  {key}")
    say("For the configuration, under gateway.api_keys; the key cannot be read from it:")
    say(f'  - {{name: "{name}", hash: "{digest}"}}')
    return 0
