"""The metrics of a parameter server: call times, sizes, and outcomes of pushes."""

from edl_protocol.fields import Json

from runtime.call_metrics import CallMetrics
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
    "rate_factor": "Factor of the learning rate by its schedule.",
    "unsaved_seconds": "Time since the newest checkpoint, or the start.",
}
_ROW_TOTALS = {
    "evicted_rows_total": ("evicted", "Rows of tables evicted; a rollback lowers it."),
    "waiting_row_gradients_total": (
        "waiting",
        "Gradients dropped because their ids were not admitted yet; a rollback lowers it.",
    ),
    "refused_row_gradients_total": (
        "refused",
        "Gradients dropped because their table was full; a rollback lowers it.",
    ),
}
"""Sums over tables: metric -> (field of the status, documentation)."""
_TOTALS = {
    **{name: documentation for name, (_, documentation) in _ROW_TOTALS.items()},
    "clipped_gradients_total": "Applied pushes whose gradient was clipped by its norm.",
    "row_lookups_total": "Rows of tables looked up.",
    "non_finite_gradients_total": "Gradients refused for NaN or infinity.",
    "rollbacks_total": "Rollbacks to a checkpoint.",
    "lost_versions_total": "Versions lost by rollbacks that this server knows of; the master counts batches.",
    "lost_records_total": "Records lost by rollbacks that this server knows of.",
}
"""Counters whose value is one number in the status: name -> documentation."""


class PserverMetrics:
    """The Prometheus metrics of one server process."""

    def __init__(self) -> None:
        metrics = Metrics("pserver")
        self.metrics = metrics
        self._pushes: dict[str, float] = {}
        self.calls = CallMetrics(metrics)
        metrics.totals("pushes_total", "Pushes answered.", "outcome", lambda: self._pushes)
        self._totals = metrics.scraped_totals(_TOTALS)
        self._gauges = {
            name: metrics.gauge(name, documentation) for name, documentation in _GAUGES.items()
        }

    def text(self, status: Json, intake_bytes: int) -> bytes:
        """Returns the metrics in Prometheus text format."""
        serving = status["serving"] or {"tables": {}, "memory": {}}
        unsaved = status["unsaved"] or {}
        gauges = {
            "generation": status["generation"],
            "version": status["version"],
            "records": status["records"],
            "rows": sum(table["rows"] for table in serving["tables"].values()),
            "highest_staleness_versions": status["staleness"]["most"],
            "used_bytes": serving["memory"].get("used_bytes", 0),
            "limit_bytes": status["max_bytes"] or 0,
            "intake_bytes": intake_bytes,
            "rate_factor": serving.get("rate_factor", 1.0),
            "unsaved_seconds": unsaved.get("seconds", 0.0),
        }
        for name, value in gauges.items():
            self._gauges[name].set(value)
        self._pushes = status["pushes"]
        rollbacks = status["setbacks"]
        tables = serving["tables"].values()
        self._totals |= {
            **{
                name: sum(table.get(field, 0) for table in tables)
                for name, (field, _) in _ROW_TOTALS.items()
            },
            "clipped_gradients_total": status["clipped"],
            "row_lookups_total": status["looked_up"],
            "non_finite_gradients_total": status["non_finite"]["count"],
            "rollbacks_total": rollbacks["count"],
            "lost_versions_total": rollbacks["steps"],
            "lost_records_total": rollbacks["records"],
        }
        return self.metrics.text()
