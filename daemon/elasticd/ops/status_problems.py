"""What keeps a fleet from being what is wanted, read from its status: one sentence each.

Keys that an older controller does not tell are unknown, and unknown is no problem by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from elasticd.ops.durations import age
from elasticd.ops.status_money import money_problems
from elasticd.ops.status_pools import pool_problems, pool_remarks, unmanaged
from elasticd.ops.status_start import coming_up, is_new, loads, short_since_loss
from elasticd.ops.text_table import clean

Thing = Mapping[str, Any]

_STALE = 30.0
"""Seconds after which the agent's silence is worth telling; it reports at least every few."""

_CLOSED = 5.0
"""Seconds after which a replica that is set aside is worth telling; most come back in two."""

_SLOW_RELOAD = 2.0
"""Seconds after which a reload under way is worth telling; it takes tenths of one."""

_TAIL = 8
"""Lines of a failed engine that are shown."""


def health(status: Thing) -> str:
    """`going down`, `degraded`, `starting` or `healthy`."""
    if status.get("down"):
        return "going down"
    if status.get("observe_only") or next(problems(status), None) is not None:
        return "degraded"
    return "healthy" if next(coming_up(status), None) is None else "starting"


def is_fine(status: Thing) -> bool:
    """Whether all is well. A fleet that still comes up, or of which too little is known, is not."""
    return health(status) == "healthy"


def problems(status: Thing) -> Iterator[str]:
    """What is wrong; a line that begins with a blank belongs to the sentence before it."""
    yield from _controller_problems(status.get("controller") or {})
    if not status.get("observe_only"):  # then it is not asked
        yield from _cluster_problems(status)
    yield from money_problems(status)
    new = is_new(status)
    for pool in status.get("pools", ()):
        yield from pool_problems(pool, new=new)
    yield from unmanaged(status)
    for model in status.get("models", ()):
        yield from _model_problems(status, model)
    for node in status.get("nodes", ()):
        yield from _node_problems(node)
    for replica in status.get("replicas", ()):
        closed = replica.get("closed_for")
        if closed is not None and closed >= _CLOSED:
            yield (
                f"replica {replica['id']} of {clean(replica['model'])}: takes no requests for "
                f"{age(closed)}: its connections broke, or it answered nothing"
            )


def remarks(status: Thing) -> Iterator[str]:
    """What people should know and what is not wrong: holds, and what a reload left undone."""
    yield from _ledger_remarks((status.get("controller") or {}).get("ledger") or {})
    for model in status.get("models", ()):
        hold = model.get("hold")
        if hold:
            left = hold.get("seconds_left")
            until = "until it is released" if left is None else f"for {age(left)} more"
            by = f" by {clean(hold['by'])}" if hold.get("by") else ""
            yield f"model {model['name']}: held at {hold.get('replicas')} replicas {until}{by}"
        if model.get("outdated"):
            count = model["outdated"]
            many = "1 replica runs" if count == 1 else f"{count} replicas run"
            then = "stay until the new one starts" if model.get("failed") else "will be replaced"
            yield f"model {model['name']}: {many} an older version and {then}"
        if model.get("failures") and _is_whole(model):
            yield (
                f"model {model['name']}: {_failed_starts(model['failures'])} before, last: "
                f"{_phrase(model.get('last_cause'))}; forgotten when a replica has served a while"
            )
    for pool in status.get("pools", ()):
        yield from pool_remarks(pool)
    reload = (status.get("controller") or {}).get("reload") or {}
    if (reload.get("running_for") or 0.0) >= _SLOW_RELOAD:
        yield f"the configuration has been read for {age(reload['running_for'])}; what was, holds"
    if reload.get("needs_restart"):
        paths = ", ".join(reload["needs_restart"])
        yield f"the configuration's changes of {paths} take effect at the next restart"
    yield from (f"configuration: {clean(text)}" for text in reload.get("warnings") or ())


def _ledger_remarks(ledger: Thing) -> Iterator[str]:
    for what in ledger.get("told", ()):
        yield clean(what)
    if ledger.get("copy_error"):
        copied = ledger.get("copy_age")
        old = "there is none" if copied is None else f"the last one is {age(copied)} old"
        yield f"no new copy of the ledger: {clean(ledger['copy_error'])}; {old}"


def _controller_problems(controller: Thing) -> Iterator[str]:
    if controller.get("problem"):
        yield f"controller: {clean(controller['problem'])}"
    if controller.get("ledger_error"):
        yield _ledger_error(controller)
    reload = controller.get("reload") or {}
    if reload.get("problem"):
        ago = f" {age(reload['at_age'])} ago" if reload.get("at_age") is not None else ""
        yield (
            f"the reload{ago} was refused, the configuration before it holds: "
            f"{clean(reload['problem'])}"
        )


def _ledger_error(controller: Thing) -> str:
    """With the file, and what to do: the disk's own words name neither."""
    told = clean(controller["ledger_error"])
    path = clean((controller.get("ledger") or {}).get("path"))
    if not path:  # an observing controller's, or an older one's, which is a sentence already
        return f"controller: {told}"
    return (
        f"controller: {path} cannot be written ({told}); nothing is rented, what was decided is "
        "kept in memory alone: make room on its disk, or see that it can be written"
    )


def _cluster_problems(status: Thing) -> Iterator[str]:
    seen = status.get("cluster_seen_age")
    if is_new(status) and (seen is None or seen <= _STALE):
        return
    if seen is None:
        yield "the cluster agent has not reported yet"
    elif seen > _STALE:
        yield f"the cluster agent last reported {age(seen)} ago"
    if status.get("cluster_detail"):
        yield f"cluster: {clean(status['cluster_detail'])}"


def _model_problems(status: Thing, model: Thing) -> Iterator[str]:
    name, wanted, ready = model["name"], model.get("wanted"), model.get("ready")
    lost = short_since_loss(status, model)
    if wanted is None:
        if not is_new(status):
            yield f"model {name}: it is not known yet how many replicas it needs"
    elif wanted > 0 and not ready:
        if not loads(status, model):
            yield f"model {name}: no replica is ready{f'; {lost}' if lost else ''}"
    elif lost:
        yield f"model {name}: {ready} of {wanted} replicas are ready; {lost}"
    if model.get("unresolved"):
        yield f"model {name}: {clean(model['unresolved'])}"
    if model.get("blocked") and not (is_new(status) and loads(status, model)):
        yield f"model {name}: {clean(model['blocked'])}"
    if model.get("failures") and not _is_whole(model):
        yield from _failures(model)


def _failures(model: Thing) -> Iterator[str]:
    name, failures, cause = model["name"], model["failures"], _phrase(model.get("last_cause"))
    if model.get("failed"):
        yield (
            f"model {name}: failed: {_starts(failures)} failed and nothing more is bought for it; "
            f"last: {cause}; correct it, then `elasticd reload` or `elasticd scale`"
        )
    else:
        yield f"model {name}: {_failed_starts(failures)}, last: {cause}"
    yield from (f"  {clean(line)}" for line in (model.get("last_tail") or ())[-_TAIL:])


def _is_whole(model: Thing) -> bool:
    """Whether failed starts are history: all replicas that are wanted serve, as they should be."""
    wanted, ready = model.get("wanted"), model.get("ready")
    whole = bool(wanted) and ready is not None and ready >= wanted
    return whole and not model.get("failed") and not model.get("outdated")


def _phrase(cause: object) -> str:
    """To stand within a sentence."""
    return clean(cause).rstrip(" .") or "cause not known"


def _failed_starts(failures: int) -> str:
    return "1 failed start" if failures == 1 else f"{failures} failed starts in a row"


def _starts(failures: int) -> str:
    return "1 start" if failures == 1 else f"{failures} starts in a row"


def _node_problems(node: Thing) -> Iterator[str]:
    if node["phase"] == "gone":
        return
    for sentence in node.get("held") or ():
        yield f"node {node['id']}: {clean(sentence)}"
    if node.get("dead_for") is not None:
        yield f"node {node['id']}: dead in Ray for {age(node['dead_for'])}"
