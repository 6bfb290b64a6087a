"""When a member reports to the master that its program waits for the others."""

from __future__ import annotations

from edl.master.protocol import RoundView

SUSPICIOUS_S = 0.3
"""A wait of this length is reported at once, unless the master asks for it later: it then probes for
a frozen member."""


class LongWait:
    """The wait of one member's program for the others, and whether the master has heard of it.

    Not thread-safe, except for `since_s`, which the program sets at any time.
    """

    def __init__(self) -> None:
        self.since_s: float | None = None
        """Since when (monotonic) the program waits; None: it does not."""
        self._suspicious_s: float | None = None
        """The length at which the master asks for a report; None where it has not said."""
        self._known_since_s: float | None = None
        """The begin of the newest wait that needs no report any more."""

    def length_s(self, now_s: float) -> float:
        """Returns how long the program has waited; 0 where it does not."""
        since_s = self.since_s
        return 0.0 if since_s is None else max(0.0, now_s - since_s)

    def due_in_s(self, now_s: float) -> float | None:
        """Returns the time until a report is due, 0 at once; None where none is."""
        since_s = self.since_s
        if since_s is None or since_s == self._known_since_s:
            return None
        return max(0.0, since_s + self._limit_s - now_s)

    def record_report(self, since_s: float | None, waited_s: float) -> None:
        """Notes that the master has received a call with this wait."""
        if waited_s >= self._limit_s:
            self._known_since_s = since_s

    def record_answer(self, view: RoundView, newest: RoundView) -> None:
        """Notes what an answer of the master says, after the view `newest`.

        Where a probe has begun while the program waits, a report of that wait would begin no other.
        """
        self._suspicious_s = view.suspicious_s
        if view.probe > newest.probe and self.since_s is not None:
            self._known_since_s = self.since_s

    @property
    def _limit_s(self) -> float:
        return SUSPICIOUS_S if self._suspicious_s is None else self._suspicious_s
