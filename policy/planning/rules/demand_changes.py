"""Jobs that change what they ask for again and again: others give them only so many trainers within an hour."""

from policy.decisions import time
from policy.planning.job_draft import JobDraft
from policy.reasons import Reason


def may_take(draft: JobDraft, count: int, *, minimum: bool = False) -> bool:
    """Whether other jobs give `count` more trainers for a job; records the reason where they do not.

    Args:
        draft: The job.
        count: Number of trainers, or of parameter servers.
        minimum: Whether its minimum starts with them, or is completed.
    """
    history = draft.demand_history
    if not (count and history.periods):
        return True
    trainers = draft.count + draft.expected_count + count
    if history.allows(draft.gains + count, trainers, minimum=minimum):
        return True
    draft.set_reason(
        Reason.CHANGED_OFTEN,
        {
            "changes": history.changes,
            "failures": history.failures,
            "gains": history.gains + draft.gains,
            "until": time(history.until_s),
        },
    )
    return False
