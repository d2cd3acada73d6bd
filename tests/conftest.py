"""Lives are numbered one by one in tests, so that these can name them."""

from __future__ import annotations

import pytest

from elasticd.runtime import ledger_store


@pytest.fixture(autouse=True)
def _lives_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_store, "seconds_so_far", lambda: 0)
