"""The jobs that moves help: those that lack room, and that others give trainers for now."""

from policy.planning.book import Book
from policy.planning.decisions import Decisions, Explain
from policy.planning.job_entry import JobEntry
from policy.planning.rules import creation_backoffs, demand_changes
from policy.reasons import Reason

CURED_BY_MOVE = (Reason.NO_ROOM, Reason.RESERVE_HELD, Reason.QUOTA_REACHED)
"""Reasons that another job's release can remove."""
Ranked = tuple[bool, int, float, str, JobEntry]
"""A job behind its `rank`."""


def lacking(book: Book) -> Decisions[list[Ranked]]:
    """Finds the jobs that a move helps; explains why others get no trainers of other jobs now."""
    found = []
    for entry in book.entries:
        is_helped = entry.reason in CURED_BY_MOVE and entry.admitted
        if is_helped and (yield from may_receive(book, entry)):
            found.append((*rank(book, entry), entry))
    return found


def rank(book: Book, entry: JobEntry) -> tuple[bool, int, float, str]:
    """Sort key of jobs that receive moves, unique for each."""
    return *book.standing(entry), book.expected_measure(entry), entry.key


def may_receive(book: Book, entry: JobEntry) -> Decisions[bool]:
    """Returns whether other jobs give trainers for the next size of a job; explains where its changes stop them."""
    if not creation_backoffs.may_receive(book, entry):
        return False
    if not entry.facts.demand_history.periods:
        return True
    blocked = demand_changes.refusal(entry, book.next_step(entry))
    if blocked:
        yield Explain(entry.key, blocked)
    return blocked is None
