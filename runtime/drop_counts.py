"""Counts connections that a server has dropped, and says when that is worth a line in the log.

Strangers cause drops, so each drop is counted, and a line sums up those of an interval.
"""

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum

from runtime.metrics import Metrics

LOG_INTERVAL_S = 60.0


class Drop(StrEnum):
    """The reasons for which a server drops connections."""

    HANDSHAKE = "handshake"
    """TLS failed or took too long; where a client CA is set, also: no certificate of it."""
    HEAD = "head"
    """The head of a request was too long, or not complete in time."""
    BODY = "body"
    """The body of a request was not complete in time."""
    ANSWER = "answer"
    """The peer did not read its answer in time."""
    MALFORMED = "malformed"
    """The request is not HTTP."""
    BODIES = "bodies"
    """All bodies together were too large."""
    FULL = "full"
    """There were too many connections, in total or of one address."""


class DropCounts:
    """The dropped connections of one server, by reason."""

    def __init__(self) -> None:
        self._totals: Counter[Drop] = Counter()
        self._logged: Counter[Drop] = Counter()
        self._logged_s: float | None = None

    @property
    def totals(self) -> Mapping[str, float]:
        """Reason -> connections since the start, for all reasons."""
        return {reason.value: float(self._totals[reason]) for reason in Drop}

    def note(self, reason: Drop, now_s: float) -> dict[str, int]:
        """Counts a drop.

        Args:
            reason: Why.
            now_s: The time on a monotonic clock.

        Returns:
            What a line in the log should say, reason -> connections since the last line; empty
            within LOG_INTERVAL_S of the last line.
        """
        self._totals[reason] += 1
        if self._logged_s is not None and now_s - self._logged_s < LOG_INTERVAL_S:
            return {}
        new = self._totals - self._logged
        self._logged, self._logged_s = self._totals.copy(), now_s
        return {reason.value: count for reason, count in new.items()}


def counted_drops(metrics: Metrics) -> DropCounts:
    """Counts of a server, which `metrics` export."""
    drops = DropCounts()
    metrics.totals(
        "connections_dropped_total",
        "Connections dropped because of what their peer did or did not do.",
        "reason",
        lambda: drops.totals,
    )
    return drops
