"""The boot script of a rented machine. Carries one secret: the single-use join token."""

from __future__ import annotations

import shlex

import elasticd

LEAST_PYTHON = (3, 11)

_SCRIPT = """#!/bin/sh
# elasticd: starts this machine's node watcher. The token below opens the door once.
set -eu
umask 077
ELASTICD_JOIN_TOKEN={token}
export ELASTICD_JOIN_TOKEN
{told}PYTHON={python}
VERSION={version}
if ! command -v "$PYTHON" >/dev/null 2>&1; then
    echo "elasticd: $PYTHON is not on this machine; set the pool's python" >&2
    exit 1
fi
# What the watcher cannot say itself, since it would not run. It tells its versions when it joins.
if ! "$PYTHON" -c 'import sys; sys.exit(sys.version_info < ({least}))'; then
    echo "elasticd: $PYTHON is $("$PYTHON" -V 2>&1), and elasticd needs {least_told} or newer;" \
        "set the pool's python" >&2
    exit 1
fi
if ! "$PYTHON" -c 'import elasticd.node'; then
    echo "elasticd: $PYTHON has no elasticd; install elasticd $VERSION for it, or set the pool's" \
        "python" >&2
    exit 1
fi
exec "$PYTHON" -m elasticd.node.watcher --node-id {node_id} --agent {agent_url}
"""


def render(
    node_id: str,
    agent_url: str,
    join_token: str,
    python: str,
    *,
    expected_gpus: int | None = None,
    notices: str = "",
    metadata_url: str = "",
) -> str:
    """A POSIX shell script that becomes the node watcher of `node_id`.

    `python` is the interpreter on the machine in whose environment elasticd and Ray live.
    `expected_gpus`: so many must be there before Ray starts; `None`: as many as there are.
    `notices`: whose metadata service the machine asks for notices (`ec2`, `gcp`; empty: nobody's);
    `metadata_url`: where that is, if not where it usually is.
    """
    told = {
        "ELASTICD_EXPECTED_GPUS": "" if expected_gpus is None else f"{expected_gpus:d}",
        "ELASTICD_NOTICES": notices,
        "ELASTICD_METADATA_URL": metadata_url,
    }
    return _SCRIPT.format(
        token=shlex.quote(join_token),
        told="".join(f"{k}={shlex.quote(v)}\nexport {k}\n" for k, v in told.items() if v),
        python=shlex.quote(python),
        version=shlex.quote(elasticd.__version__),
        least=", ".join(map(str, LEAST_PYTHON)),
        least_told=".".join(map(str, LEAST_PYTHON)),
        node_id=shlex.quote(node_id),
        agent_url=shlex.quote(agent_url),
    )
