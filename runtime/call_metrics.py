"""Metrics of the calls to a job's server: number and duration."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from runtime import clock
from runtime.drop_counts import counted_drops
from runtime.metrics import Metrics

DISCONNECTED = 499
"""The status that metrics show for a call whose caller has disconnected."""


@dataclass
class CallStatus:
    """The status of a call in progress."""

    status: int = DISCONNECTED
    """The HTTP status; DISCONNECTED until the call is answered."""


class CallMetrics:
    """Counts and times calls by path.

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
        """Measures one call; the block sets the status.

        Args:
            path: The path as declared in the route, because names in a path must not become labels.
        """
        begun_s, call_status = clock.monotonic_s(), CallStatus()
        try:
            yield call_status
        finally:
            self._calls.labels(path, str(call_status.status)).inc()
            self._seconds.labels(path).observe(clock.monotonic_s() - begun_s)
