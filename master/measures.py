"""The master's metrics: how fast it answers, and what the books say."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from runtime import clock
from runtime.metrics import Metrics

Json = dict[str, Any]


@dataclass
class Seen:
    """What became of a call."""

    status: int = 499
    """As long as there is no answer: the caller has gone."""


class Measures:
    """Of one process."""

    def __init__(self) -> None:
        metrics = Metrics("master")
        self._metrics = metrics
        self._calls = metrics.counter("calls_total", "Calls answered.", ("path", "status"))
        self._seconds = metrics.histogram(
            "call_seconds", "Time to answer, waits for tasks included.", ("path",)
        )
        self._tasks = metrics.gauge("tasks_count", "Tasks by what became of them.", ("outcome",))
        self._records = metrics.gauge(
            "records_count", "Records by what became of them.", ("outcome",)
        )
        self._trainers = metrics.gauge("trainers_count", "Trainers that have joined.")
        self._generation = metrics.gauge(
            "generation_count", "Grows when another master takes over."
        )

        self._members = metrics.gauge(
            "rendezvous_members_count", "Members of the round that trains together."
        )
        self._rounds = metrics.gauge("rendezvous_round_count", "Grows with each round.")
        self._setbacks = metrics.gauge(
            "setbacks_count", "What was lost with the model's state.", ("what",)
        )

    @contextmanager
    def call(self, path: str) -> Iterator[Seen]:
        """Measures one call."""
        begun_s, seen = clock.monotonic_s(), Seen()
        try:
            yield seen
        finally:
            self._calls.labels(path, str(seen.status)).inc()
            self._seconds.labels(path).observe(clock.monotonic_s() - begun_s)

    def text(self, status: Json) -> bytes:
        """What a scrape gets."""
        datasets = status["datasets"].values()
        for outcome in ("done", "leased", "returned", "dropped"):
            total = sum(one[f"{outcome}_tasks"] for one in datasets)
            self._tasks.labels(outcome).set(total)
        self._records.labels("done").set(sum(one["done_records"] for one in datasets))
        self._records.labels("dropped").set(sum(one["dropped_records"] for one in datasets))
        self._records.labels("lost").set(status["lost_records"])
        self._records.labels("trained_again").set(status["trained_again_records"])
        self._trainers.set(len(status["trainers"]))
        self._generation.set(status["generation"])
        self._members.set(len(status["rendezvous"]["members"]))
        self._rounds.set(status["rendezvous"]["round"])
        for what in ("count", "steps", "records"):
            self._setbacks.labels(what).set(status["setbacks"][what])
        return self._metrics.text()
