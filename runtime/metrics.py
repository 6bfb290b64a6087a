"""Metrics of one process: names follow `edl_<room>_<thing>_<unit>`, or are refused.

Every room makes one `Metrics` and passes it on; there is no global registry, so that tests
and rooms do not share counters. Labels come from closed sets (reasons, outcomes), never from
names of pods or jobs.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LATENCY_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""For answers that a caller waits for: the bars are 5 and 10 ms, the callers' patience 1 to 2 s."""
SLOW_BUCKETS_S = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 6.0, 10.0, 30.0, 60.0, 300.0)
"""For things that a cluster does: reclaim, growth, start of a job."""

_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_UNITS = ("_seconds", "_bytes", "_ratio", "_info", "_count", "_cores")


class Metrics:
    """Counters, gauges and histograms of one room, and the text that a scrape gets."""

    def __init__(self, room: str) -> None:
        self._room = room
        self.registry = CollectorRegistry(auto_describe=True)
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)

    def counter(
        self,
        name: str,
        meaning: str,
        labels: Sequence[str] = (),
        zeroed: Iterable[Sequence[str]] = (),
    ) -> Counter:
        """A counter `edl_<room>_<name>`; `name` ends in `_total`.

        Args:
            name: Without prefix.
            meaning: One sentence for whoever reads the scrape.
            labels: Label names.
            zeroed: Label values that exist from the start, so that a rate sees the first event.
        """
        metric = Counter(self._full(name, ("_total",)), meaning, labels, registry=self.registry)
        for values in zeroed:
            metric.labels(*values)
        return metric

    def gauge(self, name: str, meaning: str, labels: Sequence[str] = ()) -> Gauge:
        """A gauge `edl_<room>_<name>`; `name` ends in a unit."""
        return Gauge(self._full(name, _UNITS), meaning, labels, registry=self.registry)

    def histogram(
        self,
        name: str,
        meaning: str,
        labels: Sequence[str] = (),
        buckets: Sequence[float] = LATENCY_BUCKETS_S,
    ) -> Histogram:
        """A histogram `edl_<room>_<name>`; `name` ends in a unit."""
        full = self._full(name, _UNITS)
        return Histogram(full, meaning, labels, registry=self.registry, buckets=buckets)

    def info(self, name: str, meaning: str, ask: Callable[[], Mapping[str, str]]) -> None:
        """A gauge of 1 whose labels `ask` gives at every scrape, such as an active version."""
        self.registry.register(_Info(self._full(name, ("_info",)), meaning, ask))

    def text(self) -> bytes:
        """The scrape, in Prometheus' text format (CONTENT_TYPE)."""
        return generate_latest(self.registry)

    def _full(self, name: str, endings: tuple[str, ...]) -> str:
        if not _NAME.fullmatch(name) or not name.endswith(endings):
            raise ValueError(
                f"metric {name!r} must be lower_case and end in one of {', '.join(endings)}"
            )
        return f"edl_{self._room}_{name}"


class _Info(Collector):
    """One sample, always 1; what it says is in the labels, and only today's are shown."""

    def __init__(self, name: str, meaning: str, ask: Callable[[], Mapping[str, str]]) -> None:
        self._name, self._meaning, self._ask = name, meaning, ask

    def describe(self) -> list[GaugeMetricFamily]:
        """The family without samples: registering must not ask."""
        return [GaugeMetricFamily(self._name, self._meaning)]

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The family with today's labels."""
        labels = self._ask()
        family = GaugeMetricFamily(self._name, self._meaning, labels=list(labels))
        family.add_metric(list(labels.values()), 1.0)
        yield family
