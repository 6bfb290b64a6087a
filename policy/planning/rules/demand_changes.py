"""Jobs that change what they ask for again and again: others give them only so many trainers within an hour."""

from policy.decisions import time
from policy.planning.decisions import Blocked
from policy.planning.job_entry import JobEntry
from policy.reasons import Reason


def refusal(entry: JobEntry, count: int, *, minimum: bool = False) -> Blocked | None:
    """Returns why other jobs do not give `count` more trainers for a job; None where they do.

    Args:
        entry: The job.
        count: Number of trainers, or of parameter servers.
        minimum: Whether its minimum starts with them, or is completed.
    """
    history = entry.facts.demand_history
    if not (count and history.periods):
        return None
    trainers = entry.count + entry.expected_count + count
    if history.allows(entry.gains + count, trainers, minimum=minimum):
        return None
    return Blocked(
        Reason.CHANGED_OFTEN,
        {
            "changes": history.changes,
            "failures": history.failures,
            "gains": history.gains + entry.gains,
            "until": time(history.until_s),
        },
    )
