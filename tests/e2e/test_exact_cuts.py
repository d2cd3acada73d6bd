"""Streams of real vLLM, cut in many places, are the undisturbed ones: the short form of
`tests.e2e.exact_cuts`."""

from __future__ import annotations

import pytest

from tests.e2e.exact_cuts import run

pytestmark = pytest.mark.e2e


async def test_wherever_a_real_stream_is_cut_it_goes_on_exactly() -> None:
    tally = await run(cuts=2)
    assert not tally.wrong, "\n".join(tally.wrong)
    assert tally.cuts > 150
