"""Promises of the desk: whoever waits is looked after, also in the very moment of a change."""

from __future__ import annotations

import asyncio
from itertools import chain, repeat

from elasticd.gateway.desk import Desk
from elasticd.traffic.admission import Admission
from elasticd.traffic.routing import Ejection, Router
from elasticd.traffic.tickets import Ask
from tests.traffic.tables import endpoint, route, table


async def test_a_replica_that_comes_back_between_two_looks_at_the_clock_is_not_passed_over() -> (
    None
):
    admission = Admission(Router(Ejection(first=1.0)))
    admission.apply(table(route(endpoint())), 0.0)
    admission.failed(endpoint(), 0.0)
    clock = chain([0.9999], repeat(1.0001))
    desk = Desk(admission, lambda: next(clock), lambda: None)
    async with asyncio.timeout(10):
        with desk.claim(Ask("m")) as claim:
            assert (await claim.lease()).endpoint == endpoint()
    desk.close()
