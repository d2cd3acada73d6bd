"""`elasticd keygen`: a new API key of the gateway, and what the configuration holds of it."""

from __future__ import annotations

import argparse
import hashlib
import json
import secrets

from elasticd.cli.common import Commands
from elasticd.errors import UsageError

_BYTES = 32
_PREFIX = "sk-elasticd-"


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
    if not name.strip() or not name.isprintable():
        raise UsageError(f"--name: {name!r} is not a name; use letters, digits and dashes")
    key = _PREFIX + secrets.token_urlsafe(_BYTES)
    digest = f"sha256:{hashlib.sha256(key.encode()).hexdigest()}"
    if args.json:
        print(json.dumps({"name": name, "key": key, "hash": digest}, ensure_ascii=False))
        return 0
    quoted = json.dumps(name, ensure_ascii=False)
    print("For the client, shown this once:")
    print(f"  {key}")
    print("For the configuration, under gateway.api_keys; the key cannot be read from it:")
    print(f'  - {{name: {quoted}, hash: "{digest}"}}')
    return 0
