"""The metrics of a parameter server: how fast it answers, what it holds, what became of pushes."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pserver.frames import Json
from runtime import clock
from runtime.metrics import Metrics


@dataclass
class Seen:
    """What became of a call."""

    status: int = 499
    """As long as there is no answer: the caller has gone."""


class Measures:
    """Of one process."""

    def __init__(self) -> None:
        metrics = Metrics("pserver")
        self._metrics = metrics
        self._calls = metrics.counter("calls_total", "Calls answered.", ("path", "status"))
        self._seconds = metrics.histogram("call_seconds", "Time to answer.", ("path",))
        self._pushes = metrics.gauge(
            "pushes_count", "Pushes by what became of them, since the start.", ("outcome",)
        )
        names = {
            "generation_count": "Grows when servers begin anew or go back to a checkpoint.",
            "version_count": "Pushes that are in the parameters.",
            "records_count": "Records that are in the parameters.",
            "rows_count": "Rows of tables that are kept.",
            "looked_up_count": "Rows looked up since the start.",
            "non_finite_count": "Gradients refused for NaN or infinity since the start.",
            "stalest_count": "Versions that the stalest applied push was behind.",
            "used_bytes": "Bytes of parameters, optimizer state and what views hold.",
            "most_bytes": "Bytes that they may take; 0 where there is no limit.",
            "intake_bytes": "Bytes of bodies on their way.",
            "unsaved_seconds": "Since the newest checkpoint, or the start.",
            "setbacks_count": "Times that servers went back, since the start.",
            "lost_steps_count": "Versions gone back by that, as far as is known here; the master counts batches.",
            "lost_records_count": "Records gone back by that, as far as is known here.",
        }
        self._gauges = {name: metrics.gauge(name, meaning) for name, meaning in names.items()}

    @contextmanager
    def call(self, path: str) -> Iterator[Seen]:
        """Measures one call."""
        begun_s, seen = clock.monotonic_s(), Seen()
        try:
            yield seen
        finally:
            self._calls.labels(path, str(seen.status)).inc()
            self._seconds.labels(path).observe(clock.monotonic_s() - begun_s)

    def text(self, status: Json, intake_bytes: int) -> bytes:
        """What a scrape gets."""
        for outcome, count in status["pushes"].items():
            self._pushes.labels(outcome).set(count)
        serving = status["serving"] or {"tables": {}, "memory": {}}
        unsaved = status["unsaved"] or {}
        figures = {
            "generation_count": status["generation"],
            "version_count": status["version"],
            "records_count": status["records"],
            "rows_count": sum(one["rows"] for one in serving["tables"].values()),
            "looked_up_count": status["looked_up"],
            "non_finite_count": status["non_finite"]["count"],
            "stalest_count": status["staleness"]["most"],
            "used_bytes": serving["memory"].get("used_bytes", 0),
            "most_bytes": status["most_bytes"] or 0,
            "intake_bytes": intake_bytes,
            "unsaved_seconds": unsaved.get("seconds", 0.0),
            "setbacks_count": status["setbacks"]["count"],
            "lost_steps_count": status["setbacks"]["steps"],
            "lost_records_count": status["setbacks"]["records"],
        }
        for name, value in figures.items():
            self._gauges[name].set(value)
        return self._metrics.text()
