"""What a server has counted since its start, over all generations."""

from collections import Counter, deque
from typing import Any

from pserver.shard import Outcome

_NEWEST = 20


class Tally:
    """Plain counters; the metrics and the status are made of them."""

    def __init__(self) -> None:
        self.pushes: Counter[Outcome] = Counter()
        self.stalest = 0
        """Of the pushes that were applied."""
        self.staleness = 0
        """Their sum."""
        self.looked_up = 0
        """Rows."""
        self.non_finite = 0
        self._non_finite: deque[dict[str, Any]] = deque(maxlen=_NEWEST)

    def pushed(self, outcome: Outcome, stale: int) -> None:
        """A push was answered."""
        self.pushes[outcome] += 1
        if outcome is Outcome.APPLIED:
            self.staleness += stale
            self.stalest = max(self.stalest, stale)

    def refused(self, trainer: str, step: int, parameter: str) -> None:
        """A gradient held NaN or infinity."""
        self.non_finite += 1
        self._non_finite.append({"trainer": trainer, "step": step, "parameter": parameter})

    def told(self) -> dict[str, Any]:
        """For the status."""
        applied = self.pushes[Outcome.APPLIED]
        return {
            "pushes": {outcome.value: self.pushes[outcome] for outcome in Outcome},
            "staleness": {
                "mean": self.staleness / applied if applied else 0.0,
                "most": self.stalest,
            },
            "looked_up": self.looked_up,
            "non_finite": {"count": self.non_finite, "newest": list(self._non_finite)},
        }
