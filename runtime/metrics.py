"""Metrics of one process, named `edl_<component>_<name>`; `runtime.metric_names` has the rules.

Every component creates one `Metrics` and passes it on. There is no global registry, so tests and
components do not share counters. Label values come from closed sets (reasons, outcomes), or their number is
bounded. docs/metrics.md lists all metrics; `make metrics-page` writes it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from runtime import metric_names
from runtime.metric_names import MetricType

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LATENCY_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Bucket limits in seconds for synchronous answers: these should take at most 5 or 10 ms, and
callers time out after 1 to 2 s."""
SLOW_BUCKETS_S = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 6.0, 10.0, 30.0, 60.0, 300.0)
"""Bucket limits in seconds for processes in the cluster: reclaim, growth, start of a job."""

Samples = Mapping[tuple[str, ...], float]
"""Label values -> value."""
_FAMILIES: Mapping[MetricType, type[CounterMetricFamily] | type[GaugeMetricFamily]] = {
    MetricType.COUNTER: CounterMetricFamily,
    MetricType.GAUGE: GaugeMetricFamily,
}


@dataclass(frozen=True, slots=True, order=True)
class MetricDescription:
    """The description of a metric on the reference page."""

    name: str
    """The full name, as in a scrape."""
    type: MetricType
    labels: tuple[str, ...]
    documentation: str


class Metrics:
    """The metric registry of one component."""

    def __init__(self, component: str) -> None:
        self._component = component
        self._descriptions: list[MetricDescription] = []
        self.registry = CollectorRegistry(auto_describe=True)
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)

    @property
    def descriptions(self) -> list[MetricDescription]:
        """Returns the component's metrics by name, without the metrics of process and interpreter."""
        return sorted(self._descriptions)

    def counter(
        self,
        name: str,
        documentation: str,
        labels: Sequence[str] = (),
        zeroed: Iterable[Sequence[str]] = (),
    ) -> Counter:
        """Creates a counter `edl_<component>_<name>`; `name` ends in `_total`.

        Args:
            name: The name without prefix.
            documentation: The help text, one sentence.
            labels: Label names.
            zeroed: Label values exported from the start, so that a rate includes the first event.
        """
        full = self._describe(MetricType.COUNTER, name, documentation, labels)
        metric = Counter(full, documentation, labels, registry=self.registry)
        for values in zeroed:
            metric.labels(*values)
        return metric

    def total(self, name: str, documentation: str, read_total: Callable[[], float]) -> None:
        """Creates a counter whose value `read_total` returns at every scrape."""
        self._register_scraped(
            MetricType.COUNTER, name, documentation, (), lambda: {(): read_total()}
        )

    def scraped_totals(self, documentations: Mapping[str, str]) -> dict[str, float]:
        """Creates counters that another component counts; each scrape reads all of them together.

        Args:
            documentations: Name -> documentation.

        Returns:
            Name -> value, which each scrape exports; 0 until the caller sets it.
        """
        values = dict.fromkeys(documentations, 0.0)
        for name, documentation in documentations.items():
            self.total(name, documentation, partial(values.__getitem__, name))
        return values

    def totals(
        self,
        name: str,
        documentation: str,
        label: str,
        read_totals: Callable[[], Mapping[str, float]],
    ) -> None:
        """Creates a counter with one label; `read_totals` returns its values at every scrape."""
        self._register_scraped(
            MetricType.COUNTER,
            name,
            documentation,
            (label,),
            lambda: {(value,): total for value, total in read_totals().items()},
        )

    def gauge(self, name: str, documentation: str, labels: Sequence[str] = ()) -> Gauge:
        """Creates a gauge `edl_<component>_<name>`; `name` says what it holds now."""
        full = self._describe(MetricType.GAUGE, name, documentation, labels)
        return Gauge(full, documentation, labels, registry=self.registry)

    def values(
        self,
        name: str,
        documentation: str,
        labels: Sequence[str],
        read_values: Callable[[], Samples],
    ) -> None:
        """Creates a gauge whose samples, by label values, `read_values` returns at every scrape.

        Replace the mapping as a whole: then a scrape never sees half of a change.
        """
        self._register_scraped(MetricType.GAUGE, name, documentation, labels, read_values)

    def histogram(
        self,
        name: str,
        documentation: str,
        labels: Sequence[str] = (),
        buckets: Sequence[float] = LATENCY_BUCKETS_S,
    ) -> Histogram:
        """Creates a histogram `edl_<component>_<name>`; `name` ends in a base unit."""
        full = self._describe(MetricType.HISTOGRAM, name, documentation, labels)
        return Histogram(full, documentation, labels, registry=self.registry, buckets=buckets)

    def info(
        self,
        name: str,
        documentation: str,
        labels: Sequence[str],
        read_labels: Callable[[], Mapping[str, str]],
    ) -> None:
        """Creates a gauge of 1 with the label values that `read_labels` returns at every scrape.

        Args:
            name: The name without prefix; it ends in `_info`.
            documentation: The help text, one sentence.
            labels: Label names, the keys of `read_labels`.
            read_labels: Returns the label values.
        """
        if not name.endswith("_info"):
            raise metric_names.MetricNameError(f"{name!r} must end in _info")

        def read_values() -> Samples:
            values = read_labels()
            return {tuple(values[label] for label in labels): 1.0}

        self.values(name, documentation, labels, read_values)

    def text(self) -> bytes:
        """Returns all metrics in Prometheus' text format (CONTENT_TYPE)."""
        return generate_latest(self.registry)

    def _register_scraped(
        self,
        metric_type: MetricType,
        name: str,
        documentation: str,
        labels: Sequence[str],
        read_samples: Callable[[], Samples],
    ) -> None:
        """Registers a metric whose samples `read_samples` returns at every scrape."""
        family_class = _FAMILIES[metric_type]
        full = self._describe(metric_type, name, documentation, labels)

        def collect() -> Metric:
            family = family_class(full, documentation, labels=labels)
            for label_values, value in read_samples().items():
                family.add_metric(label_values, value)
            return family

        self.registry.register(_Family(family_class(full, documentation), collect))

    def _describe(
        self, metric_type: MetricType, name: str, documentation: str, labels: Sequence[str]
    ) -> str:
        """Checks the name and notes the metric for the reference page.

        Returns:
            The full name.
        """
        metric_names.check(metric_type, name, labels)
        full = f"edl_{self._component}_{name}"
        self._descriptions.append(
            MetricDescription(full, metric_type, tuple(labels), documentation)
        )
        return full


class _Family(Collector):
    """A collector of one metric family, which is read at every scrape."""

    def __init__(self, empty: Metric, collect: Callable[[], Metric]) -> None:
        self._empty, self._collect = empty, collect

    def describe(self) -> list[Metric]:
        """Returns the family without samples: registration must not read values."""
        return [self._empty]

    @override
    def collect(self) -> Iterator[Metric]:
        """Yields the family with the current samples."""
        yield self._collect()
