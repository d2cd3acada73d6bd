"""Whether a daemon runs for this configuration, answers, and is well."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from elasticd.cli.admin_client import AdminClient
from elasticd.cli.examine.finding import Finding, fail, ok, warn
from elasticd.errors import ElasticdError, NotReachable

_SHOWN = 5


def ask(client: AdminClient) -> dict[str, Any] | ElasticdError:
    """Its status, or why there is none."""
    try:
        return client.status()
    except ElasticdError as bad:
        return bad


def examine(answer: dict[str, Any] | ElasticdError) -> Iterator[Finding]:
    """What `ask` gave."""
    if isinstance(answer, NotReachable) and "no daemon answers" in str(answer):
        yield warn("daemon", str(answer).split(";", 1)[0], "start it with `elasticd run`")
        return
    if isinstance(answer, ElasticdError):
        yield fail("daemon", str(answer), "see its log; restart it, machines are kept")
        return
    if told := answer.get("observe_only"):
        text = (
            f"nothing is acted on: {told.get('text')} ({told.get('fault')}: {told.get('message')})"
        )
        yield fail("daemon", text, str(told.get("do")))
    from elasticd.ops.status_problems import problems
    from elasticd.ops.status_start import coming_up

    pid = (answer.get("controller") or {}).get("pid")
    found = [text for text in problems(answer) if not text.startswith(" ")]
    if not found:
        still = next(coming_up(answer), "")
        well = f"is starting: {still}" if still else "is well"
        yield ok("daemon", f"runs (process {pid}) and {well}")
    for text in found[:_SHOWN]:
        yield warn("daemon", text, "see `elasticd status --why`")
    if len(found) > _SHOWN:
        yield warn("daemon", f"and {len(found) - _SHOWN} more", "see `elasticd status`")
