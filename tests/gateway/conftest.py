"""The gateway's promises are kept on the loop that it runs on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from elasticd.gateway.loop import new_loop


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"own": new_loop}
