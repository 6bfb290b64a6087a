"""The reclaim objective: how many services met it in the policy's window, and its burn rates. Pure."""

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
"""Length of the time buckets in which services are counted."""
BURN_SPANS_S = {"1h": 3600.0, "6h": 21_600.0}
"""Label of a burn rate -> the time span that it covers."""
_MAX_BUCKETS = int(168 * 3600 / _BUCKET_S)


@dataclass(frozen=True, slots=True)
class ObjectiveStanding:
    """The standing of the reclaim objective.

    Attributes:
        objective: The objective in the policy.
        kept_count: Services in the window that started in time.
        missed_count: Services in the window that started too late.
        burn: Label of a time span -> burn rate; at a rate of 1, the budget lasts exactly one window.
    """

    objective: ReclaimObjective
    kept_count: int
    missed_count: int
    burn: Mapping[str, float]

    @property
    def budget_left(self) -> float:
        """Remaining fraction of the budget, at most 1; it is below 0 if the objective is missed."""
        allowed = (1.0 - self.objective.share) * (self.kept_count + self.missed_count)
        if not self.missed_count:
            return 1.0
        return 1.0 - self.missed_count / allowed

    def record(self, now_s: float, buckets: Iterable[tuple[float, int, int]]) -> Record:
        """Returns the record of the standing, from which the next leader continues."""
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


@dataclass(slots=True)
class _Bucket:
    """The services that started within `_BUCKET_S` from `start_s`."""

    start_s: float
    kept: int = 0
    missed: int = 0

    def reaches(self, since_s: float) -> bool:
        """Returns whether the bucket ends after `since_s`."""
        return self.start_s + _BUCKET_S > since_s


class ObjectiveCounter:
    """Counts the services that met and that missed the objective. Used on one thread."""

    def __init__(self) -> None:
        self._buckets: deque[_Bucket] = deque(maxlen=_MAX_BUCKETS)
        """Oldest first."""

    def count(
        self, objective: ReclaimObjective, starts: Iterable[ServiceStart], now_s: float
    ) -> list[ServiceStart]:
        """Counts services that have started to run; returns those that missed the objective."""
        missed = []
        for start in starts:
            if str(start.cause) not in objective.causes:
                continue
            bucket = self._bucket(now_s)
            if start.seconds > objective.seconds:
                bucket.missed += 1
                missed.append(start)
            else:
                bucket.kept += 1
        return missed

    def _bucket(self, now_s: float) -> _Bucket:
        start_s = now_s - now_s % _BUCKET_S
        if not self._buckets or self._buckets[-1].start_s < start_s:
            self._buckets.append(_Bucket(start_s))
        return self._buckets[-1]

    def standing(self, objective: ReclaimObjective, now_s: float) -> ObjectiveStanding:
        """Returns the current standing of the objective."""
        window_s = objective.window_hours * 3600.0
        kept_count, missed_count = self._sums(now_s - window_s)
        burn = {}
        for label, span_s in BURN_SPANS_S.items():
            span_kept, span_missed = self._sums(now_s - span_s)
            total = span_kept + span_missed
            burn[label] = span_missed / total / (1.0 - objective.share) if total else 0.0
        return ObjectiveStanding(objective, kept_count, missed_count, burn)

    def _sums(self, since_s: float) -> tuple[int, int]:
        recent = [bucket for bucket in self._buckets if bucket.reaches(since_s)]
        return sum(bucket.kept for bucket in recent), sum(bucket.missed for bucket in recent)

    def buckets(self, objective: ReclaimObjective, now_s: float) -> list[tuple[float, int, int]]:
        """Returns (start time, kept count, missed count) of each bucket in the window, for a record."""
        since_s = now_s - objective.window_hours * 3600.0
        return [
            (bucket.start_s, bucket.kept, bucket.missed)
            for bucket in self._buckets
            if bucket.reaches(since_s)
        ]

    def restore(self, record: Record) -> None:
        """Adds the services that the previous leader counted before this process saw its first service."""
        first_s = self._buckets[0].start_s if self._buckets else float("inf")
        earlier = [
            _Bucket(float(start_s), int(kept), int(missed))
            for start_s, kept, missed in record.figures.get("buckets", ())
            if float(start_s) < first_s
        ]
        self._buckets = deque([*earlier, *self._buckets], maxlen=_MAX_BUCKETS)
