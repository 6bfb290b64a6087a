"""Counts the connections that a server has dropped, and decides when to log them.

Any peer can cause drops, so one line of the log sums up all drops of an interval.
"""

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum

from runtime.metrics import Metrics

LOG_INTERVAL_S = 60.0


class Drop(StrEnum):
    """Why a server drops a connection."""

    HANDSHAKE = "handshake"
    """The TLS handshake failed or took too long. With a client CA, this includes peers without a
    certificate of this CA."""
    HEAD = "head"
    """The head of a request was too long, or not complete in time."""
    BODY = "body"
    """The body of a request was not complete in time."""
    ANSWER = "answer"
    """The peer did not read its answer in time."""
    MALFORMED = "malformed"
    """The request is not HTTP."""
    BODIES = "bodies"
    """All bodies in memory together were too large."""
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
            reason: The reason for the drop.
            now_s: The time on a monotonic clock.

        Returns:
            The drops to log: reason -> connections since the last line. Empty within LOG_INTERVAL_S seconds
            of the last line.
        """
        self._totals[reason] += 1
        if self._logged_s is not None and now_s - self._logged_s < LOG_INTERVAL_S:
            return {}
        new = self._totals - self._logged
        self._logged, self._logged_s = self._totals.copy(), now_s
        return {reason.value: count for reason, count in new.items()}


def counted_drops(metrics: Metrics) -> DropCounts:
    """Creates the counts of a server, and the metric that exports them."""
    drops = DropCounts()
    metrics.totals(
        "connections_dropped_total",
        "Connections dropped because of what their peer did or did not do.",
        "reason",
        lambda: drops.totals,
    )
    return drops
