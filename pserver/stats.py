"""Counters of a server since its start, over all generations."""

from collections import Counter, deque
from typing import Any

from pserver.shard import PushOutcome

_NEWEST = 20


class ServerStats:
    """The counters of one server, from which metrics and status are made."""

    def __init__(self) -> None:
        self.pushes: Counter[PushOutcome] = Counter()
        self.stalest = 0
        """Highest staleness of an applied push, in versions."""
        self.staleness = 0
        """Sum of the staleness of all applied pushes."""
        self.clipped = 0
        """Number of applied pushes whose gradient was clipped by its norm."""
        self.looked_up = 0
        """Number of rows looked up."""
        self.non_finite = 0
        self._non_finite: deque[dict[str, Any]] = deque(maxlen=_NEWEST)

    def record_push(self, outcome: PushOutcome, stale: int, *, clipped: bool = False) -> None:
        """Counts an answered push."""
        self.pushes[outcome] += 1
        if outcome is PushOutcome.APPLIED:
            self.staleness += stale
            self.stalest = max(self.stalest, stale)
            self.clipped += clipped

    def record_refusal(self, trainer: str, step: int, parameter: str) -> None:
        """Counts a gradient with NaN or infinity."""
        self.non_finite += 1
        self._non_finite.append({"trainer": trainer, "step": step, "parameter": parameter})

    def to_json(self) -> dict[str, Any]:
        """The counters as a section of the status."""
        applied = self.pushes[PushOutcome.APPLIED]
        return {
            "pushes": {outcome.value: self.pushes[outcome] for outcome in PushOutcome},
            "staleness": {
                "mean": self.staleness / applied if applied else 0.0,
                "most": self.stalest,
            },
            "clipped": self.clipped,
            "looked_up": self.looked_up,
            "non_finite": {"count": self.non_finite, "newest": list(self._non_finite)},
        }
