"""Whom a pool's machines ask whether they will go."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from elasticd.node.metadata import listeners
from elasticd.provider import ProviderPlugin
from elasticd.settings.draft import Draft, Finding
from elasticd.settings.model import NodePool

NOBODY: Final = "none"


def source_of(pool: NodePool, plugin: ProviderPlugin | None) -> str:
    """`ec2`, `gcp` or `none`: as the file says, else as the provider says, else nobody."""
    usual = plugin.defaults.get("notices", NOBODY) if plugin is not None else NOBODY
    return pool.notices or str(usual)


def notice_rules(draft: Draft) -> Iterator[Finding]:
    """An address that nobody asks, or that nobody could."""
    for index, pool in enumerate(draft.settings.node_pools):
        if pool.metadata_url is None:
            continue
        plugin = draft.plugins.get(pool.name)
        source = source_of(pool, plugin)
        place = ("node_pools", index, "metadata_url")
        because = (("node_pools", index, "notices"), ("node_pools", index, "provider"))
        if source == NOBODY:
            if plugin is not None:
                message = "nobody is asked there: notices is none; allowed there: ec2, gcp"
                yield Finding(place, message, because)
            continue
        try:
            listeners(source, pool.metadata_url, "")
        except ValueError as unusable:
            yield Finding(place, str(unusable), because)
