"""Flags and metrics that are summed in the same call as the gradient (pure)."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from edl.errors import DataError

SOURCES = 8
"""Largest number of members that send parts of a state."""
_METRICS = 16
_FLAGS = 6 + SOURCES
_HASHES, _HASH_BITS = 5, 6
"""Number of hashes and their size in bits. Sums of their squares are exact in float32 up to 4 096
members."""
_NAMES = 1 + 2 * _HASHES
SIZE = _FLAGS + _NAMES + _METRICS
"""Number of float32 values behind the gradient."""


def is_finite(flat: np.ndarray) -> bool:
    """Returns whether all numbers are finite; usually reads the array only once.

    Args:
        flat: A one-dimensional float32 array of any length.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        squares = float(
            np.dot(flat, flat)
        )  # as fast as the memory; the squares of finite numbers over 1e19 overflow
    return math.isfinite(squares) or bool(np.isfinite(flat).all())


@dataclass
class StepFlags:
    """Flags and metrics of a step: of one member before the sum, of all members after it."""

    switch: float = 0.0
    """Number of members that know a later round or leave; if any, all members change after this
    step."""
    leaving: float = 0.0
    """Number of members that leave the job."""
    nan: float = 0.0
    """Number of members whose loss was not finite."""
    unreadable: float = 0.0
    """Number of members that could not read their records."""
    lacking: float = 0.0
    """Number of staying members that lack parts of the state (`edl.sync.growth`)."""
    saving: float = 0.0
    """Number of members that are still copying their previous state."""
    parts: list[float] = field(default_factory=lambda: [0.0] * SOURCES)
    """For each source, the number of messages that receivers must have before this step is made."""
    metrics: dict[str, float] = field(default_factory=dict)
    same_names: bool = True
    """Whether all members that computed something have metrics of the same names. If not, `metrics`
    keeps this member's values, because the sums mix different metrics."""

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
        out[:4] = self.switch, self.leaving, self.nan, self.unreadable
        out[4:_FLAGS] = self.lacking, self.saving, *self.parts
        if self.metrics:
            hashes = _hashes(tuple(sorted(self.metrics)))
            out[_FLAGS] = 1.0
            out[_FLAGS + 1 : _FLAGS + _NAMES : 2] = hashes
            out[_FLAGS + 2 : _FLAGS + _NAMES : 2] = hashes**2
        for index, name in enumerate(sorted(self.metrics), _FLAGS + _NAMES):
            out[index] = self.metrics[name]

    def read(self, summed: np.ndarray, names: list[str]) -> None:
        """Reads the summed numbers; `names` are the metric names if this member computed nothing."""
        flags = [float(flag) for flag in summed[:_FLAGS]]
        self.switch, self.leaving, self.nan, self.unreadable = flags[:4]
        self.lacking, self.saving, *self.parts = flags[4:]
        count, *sums = (float(value) for value in summed[_FLAGS : _FLAGS + _NAMES])
        # by Cauchy-Schwarz, the comparison holds only if all members' hashes are equal
        squares = zip(sums[::2], sums[1::2])
        self.same_names = all(count * square == total**2 for total, square in squares)
        if not self.same_names:
            return
        metric_names = sorted(self.metrics) or names
        self.metrics = {
            name: float(value) for name, value in zip(metric_names, summed[_FLAGS + _NAMES :])
        }


def sum_by_name(members: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Sums the members' metrics of the same name, in order of rank."""
    sums: dict[str, float] = {}
    for metrics in members:
        for name, value in metrics.items():
            sums[name] = sums.get(name, 0.0) + float(value)
    return sums


@lru_cache(maxsize=4)
def _hashes(names: tuple[str, ...]) -> np.ndarray:
    """Returns hashes of a list of names; two lists have the same hashes with a probability of 2^-30."""
    digest = hashlib.sha256(json.dumps(names).encode()).digest()
    return np.array([byte >> (8 - _HASH_BITS) for byte in digest[:_HASHES]], np.float32)
