"""Decides when a member reports to the master that its program is waiting for other members."""

from __future__ import annotations

from edl.master.protocol import RoundView

SUSPICIOUS_S = 0.3
"""A wait is reported as soon as it is this long, unless the master sets another limit. The master then
probes for a frozen member."""


class LongWait:
    """A member's wait for other members, and whether the master knows of this wait.

    Not thread-safe, except for `since_s`, which the program may set at any time.
    """

    def __init__(self) -> None:
        self.since_s: float | None = None
        """Monotonic time since which the program has been waiting; None while it is not waiting."""
        self._suspicious_s: float | None = None
        """Minimum length of the waits that the master wants reported; None if it has set no limit."""
        self._known_since_s: float | None = None
        """Start of the newest wait that needs no further report."""

    def length_s(self, now_s: float) -> float:
        """Returns how long the program has been waiting; 0 if it is not waiting."""
        since_s = self.since_s
        return 0.0 if since_s is None else max(0.0, now_s - since_s)

    def due_in_s(self, now_s: float) -> float | None:
        """Returns the seconds until a report is due, 0 if it is due now; None if none will be due."""
        since_s = self.since_s
        if since_s is None or since_s == self._known_since_s:
            return None
        return max(0.0, since_s + self._limit_s - now_s)

    def record_report(self, since_s: float | None, waited_s: float) -> None:
        """Records that the master has received a call with this wait."""
        if waited_s >= self._limit_s:
            self._known_since_s = since_s

    def record_answer(self, view: RoundView, newest: RoundView) -> None:
        """Applies an answer of the master.

        Args:
            view: The answer.
            newest: The newest view before this answer.
        """
        self._suspicious_s = view.suspicious_s
        # a probe that starts during the wait covers this wait: a report would not start another probe
        if view.probe > newest.probe and self.since_s is not None:
            self._known_since_s = self.since_s

    @property
    def _limit_s(self) -> float:
        return SUSPICIOUS_S if self._suspicious_s is None else self._suspicious_s
