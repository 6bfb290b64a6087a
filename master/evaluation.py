"""An evaluation of one version of the model: the sums of its metrics. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from edl_protocol.master import MODEL_GONE

from master.types import Json

_MAX_METRICS = 640
"""Metrics of one evaluation: its tasks may report different ones."""


@dataclass(slots=True)
class Evaluation:
    """One evaluation of one model version."""

    model_version: int
    records: int = 0
    sums: dict[str, float | None] = field(default_factory=dict)
    """Metric -> its sum over records; None once one of its means was not finite."""
    weights: dict[str, int] = field(default_factory=dict)
    """Metric -> records in its sum."""
    complete: bool = False

    def add(self, metrics: Mapping[str, float | None], records: int) -> None:
        """Adds a task's means, weighted by its records; None is a mean that was not finite."""
        self.records += records
        for name, value in metrics.items():
            if name not in self.sums and len(self.sums) >= _MAX_METRICS:
                continue
            before = self.sums.get(name, 0.0)
            total = None if value is None or before is None else before + value * records
            self.sums[name] = total if total is not None and isfinite(total) else None
            self.weights[name] = self.weights.get(name, 0) + records

    @property
    def failed(self) -> bool:
        """Whether it has no result of its model, and will have none."""
        return MODEL_GONE in self.sums or (self.complete and not self.sums)

    def discard(self) -> None:
        """Discards its result: its model was lost, and another will have the same version."""
        self.sums[MODEL_GONE] = 1.0
        self.weights[MODEL_GONE] = 1

    def to_json(self) -> Json:
        """The evaluation as answers about it contain it."""
        means = {
            name: None if total is None else total / max(1, self.weights[name])
            for name, total in self.sums.items()
        }
        return {
            "model_version": self.model_version,
            "records": self.records,
            "metrics": means,
            "complete": self.complete,
        }

    def dump(self) -> list[Any]:
        """The evaluation as snapshots contain it."""
        sums, weights = dict(self.sums), dict(self.weights)
        return [self.model_version, self.records, sums, weights, self.complete]
