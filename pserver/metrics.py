"""The metrics of a parameter server: call times, sizes, and outcomes of pushes."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from pserver.frames import Json
from runtime import clock
from runtime.metrics import Metrics

_GAUGES = {
    "generation": "Grows when servers restart or roll back to a checkpoint.",
    "version": "Pushes applied to the parameters; a rollback lowers it.",
    "records": "Records of the applied pushes; a rollback lowers it.",
    "rows": "Rows of tables in memory.",
    "highest_staleness_versions": "Staleness of the stalest push applied since the start.",
    "used_bytes": "Bytes of parameters, optimizer state and arrays held by views.",
    "limit_bytes": "Limit of used_bytes; 0 for no limit.",
    "intake_bytes": "Bytes of bodies in flight.",
    "unsaved_seconds": "Time since the newest checkpoint, or the start.",
}
_TOTALS = {
    "row_lookups_total": "Rows of tables looked up.",
    "non_finite_gradients_total": "Gradients refused for NaN or infinity.",
    "rollbacks_total": "Rollbacks to a checkpoint.",
    "lost_versions_total": "Versions lost by rollbacks, as far as this server knows; the master counts batches.",
    "lost_records_total": "Records lost by rollbacks, as far as this server knows.",
}
"""Counters that the status has as one number: their meaning by name."""


@dataclass
class AnswerStatus:
    """The HTTP status of one call, filled in when it is answered."""

    status: int = 499
    """499 until there is an answer: the caller has disconnected."""


class PserverMetrics:
    """The Prometheus metrics of one server process."""

    def __init__(self) -> None:
        metrics = Metrics("pserver")
        self.metrics = metrics
        self._totals: dict[str, float] = {}
        """Totals without labels, of the newest scrape's status."""
        self._pushes: dict[str, float] = {}
        self._calls = metrics.counter("calls_total", "Calls answered.", ("path", "status"))
        self._seconds = metrics.histogram("call_seconds", "Time to answer.", ("path",))
        metrics.totals("pushes_total", "Pushes answered.", "outcome", lambda: self._pushes)
        for name, documentation in _TOTALS.items():
            metrics.total(name, documentation, partial(self._total, name))
        self._gauges = {
            name: metrics.gauge(name, documentation) for name, documentation in _GAUGES.items()
        }

    @contextmanager
    def call(self, path: str) -> Iterator[AnswerStatus]:
        """Counts and times one call."""
        begun_s, call_status = clock.monotonic_s(), AnswerStatus()
        try:
            yield call_status
        finally:
            self._calls.labels(path, str(call_status.status)).inc()
            self._seconds.labels(path).observe(clock.monotonic_s() - begun_s)

    def text(self, status: Json, intake_bytes: int) -> bytes:
        """The metrics in Prometheus text format."""
        serving = status["serving"] or {"tables": {}, "memory": {}}
        unsaved = status["unsaved"] or {}
        gauges = {
            "generation": status["generation"],
            "version": status["version"],
            "records": status["records"],
            "rows": sum(table["rows"] for table in serving["tables"].values()),
            "highest_staleness_versions": status["staleness"]["most"],
            "used_bytes": serving["memory"].get("used_bytes", 0),
            "limit_bytes": status["most_bytes"] or 0,
            "intake_bytes": intake_bytes,
            "unsaved_seconds": unsaved.get("seconds", 0.0),
        }
        for name, value in gauges.items():
            self._gauges[name].set(value)
        self._pushes = status["pushes"]
        rollbacks = status["setbacks"]
        self._totals = {
            "row_lookups_total": status["looked_up"],
            "non_finite_gradients_total": status["non_finite"]["count"],
            "rollbacks_total": rollbacks["count"],
            "lost_versions_total": rollbacks["steps"],
            "lost_records_total": rollbacks["records"],
        }
        return self.metrics.text()

    def _total(self, name: str) -> float:
        return self._totals.get(name, 0.0)
