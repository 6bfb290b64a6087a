"""Metrics of a process's watches, read from the reflectors' counters at every scrape."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from kube.reflector import Reflector
from runtime.metrics import Metrics


def add_watch_metrics(metrics: Metrics, reflectors: Mapping[str, Reflector[Any]]) -> None:
    """Registers the counters `watch_lists_total`, `watch_events_total` and `watch_errors_total`.

    Args:
        metrics: The process's metrics.
        reflectors: Resource (plural) -> its reflector.
    """
    metrics.totals(
        "watch_lists_total",
        "Complete lists of a resource; each but the first follows a watch that could not resume.",
        "resource",
        lambda: {name: reflector.counts.lists for name, reflector in reflectors.items()},
    )
    metrics.totals(
        "watch_events_total",
        "Messages of the watches, bookmarks included.",
        "resource",
        lambda: {name: reflector.counts.events for name, reflector in reflectors.items()},
    )
    metrics.totals(
        "watch_errors_total",
        "Errors of lists and watches, malformed objects included, by kind of error.",
        "kind",
        lambda: _errors_by_kind(reflectors),
    )


def _errors_by_kind(reflectors: Mapping[str, Reflector[Any]]) -> Mapping[str, float]:
    total: Counter[str] = Counter()
    for reflector in reflectors.values():
        total.update(reflector.counts.errors)
    return {kind: float(count) for kind, count in total.items()}
