"""What Prometheus reads at `/metrics`: counters of what became of requests, by model.

The gateway counts since it began and tells its sums again and again. A counter that is smaller than
before is one of a gateway that has started again, which is what Prometheus takes it for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

REQUESTS = {
    "answered": "Requests that got their complete answer, and no error.",
    "continued": "Streams that lost or left a replica and went on with another one.",
    "restarted": "Requests started again elsewhere, before their client had a part of the answer.",
    "finished": "Requests finished on a replica that was to go.",
    "lost": "Requests whose client was told of an error because replicas were lost.",
}
"""Counters of the gateway, and what each of them says."""


class RequestTotals(Collector):
    """The gateway's sums as they were told last."""

    def __init__(self) -> None:
        self._totals: dict[str, Mapping[str, int]] = {}
        self._life = ""

    def take(self, totals: Sequence[Mapping[str, Any]]) -> None:
        """From a report; models that it does not name keep what is known of them."""
        for told in totals:
            self._totals[told["model"]] = {name: told.get(name, 0) for name in REQUESTS}

    def began_anew(self, life: str) -> bool:
        """Whether this is another life of the gateway than the one that reported before."""
        before, self._life = self._life, life or self._life
        return bool(before and life and before != life)

    def collect(self) -> Iterator[CounterMetricFamily]:
        for name, meaning in REQUESTS.items():
            counter = CounterMetricFamily(f"elasticd_requests_{name}", meaning, labels=["model"])
            for model, counts in sorted(self._totals.items()):
                counter.add_metric([model], counts[name])
            yield counter

    def text(self) -> bytes:
        """All of it in Prometheus' text format."""
        registry = CollectorRegistry()
        registry.register(self)
        return generate_latest(registry)
