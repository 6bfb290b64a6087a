"""The reclaim objective: how many services kept it in the policy's window, and how fast its budget burns. Pure."""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from policy.document.model import ReclaimObjective
from policy.reasons import Observation
from policy.records import Record
from reconciler.records.service_starts import ServiceStart

ABOUT = "objective reclaim"
_BUCKET_S = 300.0
"""Services are counted in spans of this length."""
BURN_SPANS_S = {"1h": 3600.0, "6h": 21_600.0}
"""Label of a burn rate -> the time over which it is taken."""
_MAX_BUCKETS = int(168 * 3600 / _BUCKET_S)


@dataclass(frozen=True, slots=True)
class ObjectiveStanding:
    """The standing of the reclaim objective.

    Attributes:
        objective: The policy's.
        kept_count: Services within the time, in the window.
        missed_count: Those that took longer.
        burn: Label of a span -> burn rate there: 1 uses the budget up in just the window.
    """

    objective: ReclaimObjective
    kept_count: int
    missed_count: int
    burn: Mapping[str, float]

    @property
    def budget_left(self) -> float:
        """The part of the budget that is left, 1 at most; below 0 the objective is missed."""
        allowed = (1.0 - self.objective.share) * (self.kept_count + self.missed_count)
        if not self.missed_count:
            return 1.0
        return 1.0 - self.missed_count / allowed

    def record(self, now_s: float, buckets: Iterable[tuple[float, int, int]]) -> Record:
        """The record of it, with which another leader goes on."""
        share, seconds = self.objective.share, self.objective.seconds
        figures: dict[str, Any] = {
            "share": share,
            "seconds": seconds,
            "windowHours": self.objective.window_hours,
            "kept": self.kept_count,
            "missed": self.missed_count,
            "budgetLeft": round(self.budget_left, 4),
            "burn": {span: round(rate, 3) for span, rate in self.burn.items()},
            "buckets": [list(bucket) for bucket in buckets],
        }
        text = (
            f"{self.kept_count} of {self.kept_count + self.missed_count} services within {seconds:g} s "
            f"(objective {share:.4g}), {self.budget_left:.0%} of the budget left"
        )
        return Record(now_s, ABOUT, Observation.OBJECTIVE, text, figures, since_s=now_s)


class ObjectiveCounter:
    """Counts the services that kept and that missed the objective; used on one thread."""

    def __init__(self) -> None:
        self._buckets: deque[list[float]] = deque(maxlen=_MAX_BUCKETS)
        """(start of the span, kept, missed), the oldest first."""

    def count(
        self, objective: ReclaimObjective, starts: Iterable[ServiceStart], now_s: float
    ) -> list[ServiceStart]:
        """Counts services that have begun to run; returns those that missed the objective."""
        missed = []
        for start in starts:
            if str(start.cause) not in objective.causes:
                continue
            bucket = self._bucket(now_s)
            if start.seconds > objective.seconds:
                bucket[2] += 1
                missed.append(start)
            else:
                bucket[1] += 1
        return missed

    def _bucket(self, now_s: float) -> list[float]:
        start_s = now_s - now_s % _BUCKET_S
        if not self._buckets or self._buckets[-1][0] < start_s:
            self._buckets.append([start_s, 0, 0])
        return self._buckets[-1]

    def standing(self, objective: ReclaimObjective, now_s: float) -> ObjectiveStanding:
        """How the objective stands."""
        window_s = objective.window_hours * 3600.0
        kept_count, missed_count = self._sums(now_s - window_s)
        burn = {}
        for label, span_s in BURN_SPANS_S.items():
            span_kept, span_missed = self._sums(now_s - span_s)
            total = span_kept + span_missed
            burn[label] = span_missed / total / (1.0 - objective.share) if total else 0.0
        return ObjectiveStanding(objective, kept_count, missed_count, burn)

    def _sums(self, since_s: float) -> tuple[int, int]:
        recent = [bucket for bucket in self._buckets if bucket[0] + _BUCKET_S > since_s]
        return int(sum(bucket[1] for bucket in recent)), int(sum(bucket[2] for bucket in recent))

    def buckets(self, objective: ReclaimObjective, now_s: float) -> list[tuple[float, int, int]]:
        """The spans of the window, for a record."""
        since_s = now_s - objective.window_hours * 3600.0
        return [
            (start_s, int(kept), int(missed))
            for start_s, kept, missed in self._buckets
            if start_s + _BUCKET_S > since_s
        ]

    def restore(self, record: Record) -> None:
        """Takes over what another process has counted before this one saw its first service."""
        first_s = self._buckets[0][0] if self._buckets else float("inf")
        earlier = [
            [float(start_s), int(kept), int(missed)]
            for start_s, kept, missed in record.figures.get("buckets", ())
            if float(start_s) < first_s
        ]
        own = list(self._buckets)
        self._buckets = deque([*earlier, *own], maxlen=_MAX_BUCKETS)
