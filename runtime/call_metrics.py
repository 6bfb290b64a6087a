"""Metrics of the calls that a job's server answers: their number and their time."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from runtime import clock
from runtime.drop_counts import counted_drops
from runtime.metrics import Metrics

DISCONNECTED = 499
"""The HTTP status of a call whose caller has disconnected, for metrics."""


@dataclass
class CallStatus:
    """The HTTP status of a call, for its metrics."""

    status: int = DISCONNECTED
    """DISCONNECTED until there is an answer."""


class CallMetrics:
    """Counts and times calls by their path.

    Attributes:
        drops: The counts of dropped connections.
    """

    def __init__(self, metrics: Metrics) -> None:
        self.drops = counted_drops(metrics)
        self._calls = metrics.counter("calls_total", "Calls answered.", ("path", "status"))
        self._seconds = metrics.histogram(
            "call_seconds", "Time to answer, waits included.", ("path",)
        )

    @contextmanager
    def measure(self, path: str) -> Iterator[CallStatus]:
        """Measures one call; the block sets its status.

        Args:
            path: The path as it was declared, so that names in it do not become labels.
        """
        begun_s, call_status = clock.monotonic_s(), CallStatus()
        try:
            yield call_status
        finally:
            self._calls.labels(path, str(call_status.status)).inc()
            self._seconds.labels(path).observe(clock.monotonic_s() - begun_s)
