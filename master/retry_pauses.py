"""When failed tasks may be leased again, and when an outage or a ticket has lasted too long.

Pure; time is passed in. The journal does not contain these times: after a restart they all begin
again.
"""

from typing import NamedTuple

from master.commands import EndOutage, EndTicket, Retry
from master.leases import FailingTask
from master.ledger import Ledger

RETRY_S = 1.0
"""The pause of a task after its first failure."""
_LONGEST_S = 30.0
"""The longest pause of a task."""
_MAX_DOUBLINGS = 5
OUTAGE_S = 600.0
"""Default limit of how long a data set may be unreadable before the job fails."""
_QUIET_SHARE = 0.5
"""A failure begins a new outage if the previous failure is longer ago than this share of the outage
limit."""
TICKET_S = 600.0
"""How long writing a checkpoint may take before another trainer may write one."""
_TICKET_TIMES = 3.0
"""Writing a checkpoint may also take this many times as long as the longest write so far."""


class _Outage(NamedTuple):
    """One outage of a data set."""

    since_s: float
    """When it began."""
    failures: int
    """`FailureWave.failures` at the newest failure."""
    newest_s: float
    """When the newest failure was seen."""


class RetryPauses:
    """The times of one ledger's failed tasks, outages and ticket."""

    def __init__(self, first_s: float = RETRY_S) -> None:
        """Starts without times; the pause after a task's first failure lasts `first_s`."""
        self._first_s = first_s
        self._due_s: dict[FailingTask, float] = {}
        self._outages: dict[str, _Outage] = {}
        """Data set -> its outage."""
        self._ticket: tuple[str, float] | None = None
        """The valid ticket, and since when it is valid."""
        self._longest_save_s = 0.0

    @property
    def unreadable(self) -> list[str]:
        """The data sets with an outage at the last call of `outage`."""
        return list(self._outages)

    def pause_s(self, tries: int) -> float:
        """Returns the pause of a task that failed `tries` times: 1, 2, 4, 8, 16, then 30 s."""
        return min(_LONGEST_S, self._first_s * float(1 << min(_MAX_DOUBLINGS, tries - 1)))

    def retry(self, ledger: Ledger, now_s: float) -> Retry | None:
        """Returns the command that ends the pauses that are over; None if no pause is over."""
        due_s = {
            entry: self._due_s.get(entry, now_s + self.pause_s(entry.tries))
            for entry in ledger.failing()
        }
        over = [entry for entry, entry_s in due_s.items() if entry_s <= now_s]
        self._due_s = due_s
        if not over:
            return None
        ready = [entry.task for entry in over if entry.paused]
        return Retry(ready, [entry.task for entry in over if not entry.paused])

    def outage(self, ledger: Ledger, max_s: float, now_s: float) -> EndOutage | None:
        """Returns the command that ends an outage longer than `max_s`; None if there is none.

        An outage lasts from its first failure to its newest. Time alone does not make it longer:
        perhaps no trainer reads, or trainers train for a long time on tasks that could be read
        again.
        """
        waves = {data.name: data.wave.failures for data in ledger.datasets.values() if data.outage}
        quiet_s = _QUIET_SHARE * max_s
        self._outages = {
            name: _after_failures(self._outages.get(name), failures, quiet_s, now_s)
            for name, failures in waves.items()
        }
        for name, outage in self._outages.items():
            lasted_s = outage.newest_s - outage.since_s
            if lasted_s > max_s and not ledger.failed:
                del self._outages[name]  # other tasks may still be in an outage after the command
                return EndOutage(name, round(lasted_s))
        return None

    def ticket(self, ticket: str, now_s: float) -> EndTicket | None:
        """Returns the command that ends a ticket that has been valid for too long; None before.

        Args:
            ticket: The valid ticket; "" if there is none.
            now_s: The time, by the same clock as in all other calls.
        """
        if self._ticket is None or self._ticket[0] != ticket:
            if self._ticket is not None:
                self._longest_save_s = max(self._longest_save_s, now_s - self._ticket[1])
            self._ticket = (ticket, now_s) if ticket else None
            return None
        allowed_s = max(TICKET_S, _TICKET_TIMES * self._longest_save_s)
        if now_s - self._ticket[1] <= allowed_s:
            return None
        self._ticket = None  # the time of a hanging trainer is not the longest write
        return EndTicket(ticket)


def _after_failures(known: _Outage | None, failures: int, quiet_s: float, now_s: float) -> _Outage:
    """Returns the updated outage, given the current number of failures of its wave."""
    if known is None or (failures != known.failures and now_s - known.newest_s > quiet_s):
        return _Outage(now_s, failures, now_s)
    return known if failures == known.failures else _Outage(known.since_s, failures, now_s)
