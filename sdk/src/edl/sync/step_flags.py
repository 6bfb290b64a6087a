"""Flags and metrics that are summed together with the gradient, in the same call (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from edl.errors import DataError

if TYPE_CHECKING:
    import numpy as np

_METRICS = 16
_FLAGS = 4
SIZE = _FLAGS + _METRICS
"""Number of float32 values behind the gradient."""


@dataclass
class StepFlags:
    """Flags and metrics of a step: one member's before the sum, all members' after it."""

    switch: float = 0.0
    """Number of members that received a later round, or leave: all change after this step."""
    leaving: float = 0.0
    """Number of members that leave the job."""
    nan: float = 0.0
    """Number of members whose loss was not finite."""
    unreadable: float = 0.0
    """Number of members that could not read their records."""
    metrics: dict[str, float] = field(default_factory=dict)

    def add(self, metrics: Mapping[str, float], weight: float) -> None:
        """Adds the means of a micro-batch, weighted by its share of the step's records."""
        for name, value in metrics.items():
            self.metrics[name] = self.metrics.get(name, 0.0) + float(value) * weight

    def write(self, out: np.ndarray) -> None:
        """Writes flags and metrics into `SIZE` numbers.

        Raises:
            DataError: There are too many metrics.
        """
        if len(self.metrics) > _METRICS:
            raise DataError(f"{len(self.metrics)} metrics, but a step carries {_METRICS} at most")
        out[:] = 0
        out[:_FLAGS] = self.switch, self.leaving, self.nan, self.unreadable
        for index, name in enumerate(sorted(self.metrics), _FLAGS):
            out[index] = self.metrics[name]

    def read(self, summed: np.ndarray, names: list[str]) -> None:
        """Reads summed numbers; `names` of the metrics, in case this member computed nothing."""
        flags = (float(flag) for flag in summed[:_FLAGS])
        self.switch, self.leaving, self.nan, self.unreadable = flags
        metric_names = sorted(self.metrics) or names
        self.metrics = {
            name: float(summed[_FLAGS + index]) for index, name in enumerate(metric_names)
        }
