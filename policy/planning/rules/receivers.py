"""The jobs that get trainers at the expense of other jobs, and how many they may get.

A job that changes its demand again and again gets only a few trainers from other jobs within an hour
(`policy.planning.demand`).
"""

from policy.decisions import time
from policy.planning.book import Book
from policy.planning.decisions import Blocked, Decisions, Explain
from policy.planning.job_entry import JobEntry
from policy.planning.rules import creation_backoffs
from policy.reasons import Reason

CURED_BY_MOVE = (Reason.NO_ROOM, Reason.RESERVE_HELD, Reason.QUOTA_REACHED)
"""Reasons that another job's release can remove."""
Ranked = tuple[bool, int, float, str, JobEntry]
"""A job's `rank`, followed by the job."""


def lacking(book: Book) -> Decisions[list[Ranked]]:
    """Finds the jobs that a move helps; explains for jobs that may not take trainers why they may not."""
    found = []
    for entry in book.entries:
        is_helped = entry.reason in CURED_BY_MOVE and entry.admitted
        if is_helped and (yield from may_receive(book, entry)):
            found.append((*rank(book, entry), entry))
    return found


def rank(book: Book, entry: JobEntry) -> tuple[bool, int, float, str]:
    """Returns the sort key of jobs that receive trainers; it is unique for each job."""
    return *book.standing(entry), book.expected_measure(entry), entry.key


def may_receive(book: Book, entry: JobEntry) -> Decisions[bool]:
    """Returns whether a job may take trainers for its next size; explains if its changed demand forbids it."""
    if not creation_backoffs.may_receive(book, entry):
        return False
    if not entry.facts.demand_history.periods:
        return True
    blocked = refusal(entry, book.next_step(entry))
    if blocked:
        yield Explain(entry.key, blocked)
    return blocked is None


def refusal(entry: JobEntry, count: int, *, minimum: bool = False) -> Blocked | None:
    """Returns why a job may not take `count` more trainers from other jobs; None if it may.

    Args:
        entry: The job.
        count: Number of trainers, or of parameter servers.
        minimum: Whether the job's minimum starts with them or is completed by them.
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
