"""How often one request may be started again; the rules are documented in docs/gateway.md.

Before a byte of the answer is with the client, what the replica did with the request decides:

* It never took it (refused, busy, shutting down): always elsewhere, as long as it may wait.
* It took it and is gone: elsewhere, until so many losses that the request itself is suspect.
* It took it, failed, and still lives: once more, elsewhere. It may be the request.
* It answered with a fault of its own (500, 502, 504): once more, if there is another replica; if
  that one fails too, the client gets the engine's answer as it is.

Once a part of the answer is with the client every way to lose the replica is one loss, and so many
of them make the request suspect.

What a replica did not take costs it nothing, and it is set aside. Of the rest the first is free,
and each further one needs a place in the budget of all requests together (`RetryBudget`).
"""

from __future__ import annotations

from collections.abc import Callable

from elasticd.gateway.errors import (
    ApiError,
    no_first_byte,
    replica_lost,
    retries_spent,
    suspect,
)
from elasticd.gateway.failures import (
    EngineFault,
    OutOfReach,
    ReplicaFailed,
    ReplicaLeaving,
    ReplicaLost,
    ReplicaRefused,
    ReplicaSilent,
)
from elasticd.traffic.tickets import Lease


class Replay:
    """One request's story of failures. `may_repeat` takes a place in the budget, if it has one."""

    __slots__ = (
        "_losses",
        "_max_losses",
        "_may_repeat",
        "_model",
        "_strikes",
        "fault",
        "suspect",
    )

    def __init__(self, model: str, max_losses: int, may_repeat: Callable[[], bool]) -> None:
        self._model = model
        self._max_losses = max_losses
        self._may_repeat = may_repeat
        self._losses = 0
        self._strikes = 0
        self.fault: EngineFault | None = None
        """The answer that the client gets if no other replica has a better one."""
        self.suspect: Lease | None = None
        """Whose fault it was; an answer from elsewhere proves that it was not the request's."""

    @property
    def may_fail_once(self) -> bool:
        """Whether it is tried again after one failure, of whatever kind."""
        return self._strikes == 0

    def excuse(self) -> None:
        """A failure that was counted as one of a replica that lives: that replica was gone."""
        self._strikes -= 1
        self._losses += 1

    @property
    def may_lose_one(self) -> bool:
        """Whether one more loss would not be the last one."""
        return self._losses + 1 < self._max_losses

    def failed(self, lease: Lease, failure: ReplicaFailed, *, begun: bool = False) -> None:
        """Takes note. Raises `ApiError` if the request is not tried again. `begun`: a part of the
        answer is with the client."""
        if isinstance(failure, ReplicaRefused | ReplicaLeaving | OutOfReach):
            return
        if begun or (isinstance(failure, ReplicaLost) and failure.gone):
            self._losses += 1
            if self._losses >= self._max_losses:
                raise suspect(self._model, self._losses)
        else:
            self._strikes += 1
            if isinstance(failure, EngineFault):
                self.fault, self.suspect = failure, lease
            elif self._strikes > 1:
                raise self._given_up(failure)
        if self._losses + self._strikes > 1 and not self._may_repeat():
            raise retries_spent(self._model)

    def _given_up(self, failure: ReplicaFailed) -> ApiError:
        if isinstance(failure, ReplicaSilent):
            return no_first_byte(self._model, failure.seconds)
        return replica_lost(self._model)
