"""When failed tasks may be leased again, and when an outage or a ticket has lasted too long.

Pure; time is passed in. None of this is in the journal: after a restart all times begin again.
"""

from typing import NamedTuple

from master.commands import EndOutage, EndTicket, Retry
from master.leases import FailingTask
from master.ledger import Ledger

RETRY_S = 1.0
"""The pause of a task after its first failure."""
_LONGEST_S = 30.0
_MAX_DOUBLINGS = 5
OUTAGE_S = 600.0
"""Default of how long a data set may be unreadable before the job fails."""
_QUIET_SHARE = 0.5
"""Without a failure for this share of that time, a failure begins another outage."""
TICKET_S = 600.0
"""How long writing a checkpoint may take before another trainer may write one."""
_TICKET_TIMES = 3.0
"""It may also take this many times as long as the longest before."""


class _Outage(NamedTuple):
    """The times of one outage of a data set."""

    since_s: float
    failures: int
    """The wave's number of failures at the newest of them."""
    newest_s: float


class RetryPauses:
    """The times of failed tasks, of outages and of the ticket of one ledger."""

    def __init__(self, first_s: float = RETRY_S) -> None:
        """Starts without times; the first pause of a task lasts `first_s`."""
        self._first_s = first_s
        self._due_s: dict[FailingTask, float] = {}
        self._outages: dict[str, _Outage] = {}
        """By data set."""
        self._ticket: tuple[str, float] | None = None
        """The ticket that is valid, and since when."""
        self._longest_save_s = 0.0

    @property
    def unreadable(self) -> list[str]:
        """The data sets with an outage, as of the last `outage`."""
        return list(self._outages)

    def pause_s(self, tries: int) -> float:
        """Returns the pause of a task that failed `tries` times: 1, 2, 4, 8, 16, then 30 s."""
        return min(_LONGEST_S, self._first_s * float(1 << min(_MAX_DOUBLINGS, tries - 1)))

    def retry(self, ledger: Ledger, now_s: float) -> Retry | None:
        """Returns the command that ends the pauses that are over; None where there are none."""
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
        """Returns the command that ends an outage of `max_s`; None before.

        An outage lasts from its first failure to its newest: where nobody reads, or tasks are
        trained for long after they could be read again, time alone does not end it.
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
                del self._outages[name]  # the command may leave an outage of other tasks
                return EndOutage(name, round(lasted_s))
        return None

    def ticket(self, ticket: str, now_s: float) -> EndTicket | None:
        """Returns the command that ends a ticket that is valid for too long; None before.

        Args:
            ticket: The ticket that is valid; "" for none.
            now_s: The time, of the same clock as all others.
        """
        if self._ticket is None or self._ticket[0] != ticket:
            if self._ticket is not None:
                self._longest_save_s = max(self._longest_save_s, now_s - self._ticket[1])
            self._ticket = (ticket, now_s) if ticket else None
            return None
        allowed_s = max(TICKET_S, _TICKET_TIMES * self._longest_save_s)
        if now_s - self._ticket[1] <= allowed_s:
            return None
        self._ticket = None  # how long a saver has hung says nothing of how long others take
        return EndTicket(ticket)


def _after_failures(known: _Outage | None, failures: int, quiet_s: float, now_s: float) -> _Outage:
    """Returns an outage after its wave has so many failures."""
    if known is None or (failures != known.failures and now_s - known.newest_s > quiet_s):
        return _Outage(now_s, failures, now_s)
    return known if failures == known.failures else _Outage(known.since_s, failures, now_s)
