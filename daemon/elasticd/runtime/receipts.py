"""Who asked for something is told so when the ledger has it, not before.

What people have been told is accepted must survive a crash of the next moment; and where nothing
can be written or decided any more, they are told that instead.
"""

from __future__ import annotations

import asyncio


class Receipts:
    """`begun` and `ended` around each round of the control loop; `wait` is everybody else's."""

    def __init__(self) -> None:
        self._next: list[asyncio.Future[bool]] = []
        self._under_way: list[asyncio.Future[bool]] = []

    async def wait(self) -> bool:
        """Returns after the first round that begins from now on: whether the ledger has what was
        put into the inbox until now. Raises what `failed` was given."""
        receipt: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._next.append(receipt)
        return await receipt

    def begun(self) -> None:
        """A round has taken everything there is."""
        self._under_way, self._next = self._next, []

    def ended(self, written: bool) -> None:
        """That round is over."""
        for receipt in self._under_way:
            if not receipt.done():
                receipt.set_result(written)
        self._under_way = []

    def failed(self, fault: Exception) -> None:
        """There will be no further round."""
        for receipt in (*self._under_way, *self._next):
            if not receipt.done():
                receipt.set_exception(fault)
        self._under_way, self._next = [], []
