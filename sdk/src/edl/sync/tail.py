"""A few numbers that travel at the gradient's end: they cost no exchange of their own. Pure."""

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
"""Float32 numbers."""


@dataclass
class Tail:
    """One member's before the sum, everybody's after it."""

    switch: float = 0.0
    """How many know of a later round, or leave: all change after this step."""
    leaving: float = 0.0
    """How many leave the job."""
    nan: float = 0.0
    """How many had a loss that is no number."""
    unread: float = 0.0
    """How many could not read their records."""
    metrics: dict[str, float] = field(default_factory=dict)

    def add(self, found: Mapping[str, float], weight: float) -> None:
        """A micro-batch's means, as its share of the step."""
        for name, value in found.items():
            self.metrics[name] = self.metrics.get(name, 0.0) + float(value) * weight

    def write(self, out: np.ndarray) -> None:
        """Into `SIZE` numbers.

        Raises:
            DataError: There are too many metrics.
        """
        if len(self.metrics) > _METRICS:
            raise DataError(f"{len(self.metrics)} metrics, but a step carries {_METRICS} at most")
        out[:] = 0
        out[:_FLAGS] = self.switch, self.leaving, self.nan, self.unread
        for place, name in enumerate(sorted(self.metrics), _FLAGS):
            out[place] = self.metrics[name]

    def read(self, summed: np.ndarray, names: list[str]) -> None:
        """What `write` wrote, summed up; `names` in case this member computed nothing."""
        flags = (float(one) for one in summed[:_FLAGS])
        self.switch, self.leaving, self.nan, self.unread = flags
        known = sorted(self.metrics) or names
        self.metrics = {name: float(summed[_FLAGS + place]) for place, name in enumerate(known)}
