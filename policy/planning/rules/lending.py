"""Rule 7, lending: a queue returns borrowed capacity at once when the owner needs it.

The owner needs its share when one of its jobs could grow within its nominal quota but lacks capacity or
quota. The limit on simultaneous moves and the shares of jobs play no part here: one plan returns
everything that the owner can use. A queue never gives below its own quota, except that its last released
trainer may be larger than the amount still borrowed. Minimums never borrow (`policy.planning.borrowing`), so
no minimum is evicted. A returned share does not move back and forth: the queue that returned it could only
get it back by borrowing again.
"""

from heapq import heapify, heappop, heappush

from policy.cluster import amounts
from policy.cluster.snapshot import Pod, Resources
from policy.decisions import Figures
from policy.planning.book import Book
from policy.planning.decisions import Decisions, Explain
from policy.planning.job_entry import JobEntry
from policy.planning.rules.admission import own_quota_lack
from policy.planning.rules.moves import Donors, Move
from policy.planning.rules.receivers import CURED_BY_MOVE, lacking, may_receive, rank
from policy.reasons import Reason


def return_shares(book: Book) -> Decisions[None]:
    """Releases borrowed surplus for jobs that lack part of their own queue's quota.

    The rule waits while services reclaim capacity, because they determine how much remains to share.
    """
    if book.burst or not book.quotas.borrowing:
        return
    ranked = yield from lacking(book)
    owners = [item for item in ranked if _asks(book, item[-1])]
    heapify(owners)
    donors = Donors(book)
    ruled_out_nodes: dict[tuple[object, ...], set[str]] = {}
    failed_steps: dict[tuple[object, ...], int] = {}
    """Kind of owner -> smallest step that failed: later owners of that kind find even less."""
    while owners:
        *_, owner = heappop(owners)
        job = owner.job
        key = tuple(sorted(job.requests.items())), job.constraints, owner.reason, job.queue
        nodes = ruled_out_nodes.setdefault(key, set())
        kind, step = (job.namespace, *key), book.next_step(owner)
        if step >= failed_steps.get(kind, step + 1):
            continue
        move = Move(book, owner, donors, _Return(book, owner), nodes)
        if not move.possible:
            failed_steps[kind] = step
            continue
        yield from move.decisions()
        for donor in {entry.key: entry for entry, _ in move.victims}.values():
            donors.changed(donor)
        if (yield from may_receive(book, owner)) and _asks(book, owner):
            heappush(owners, (*rank(book, owner), owner))


def explain_minimums(book: Book) -> Decisions[None]:
    """Explains for running jobs below their minimum what their queue's nominal quota does not cover.

    They may borrow the uncovered part as surplus, but the missing quota is the reason to report.
    """
    for entry in book.entries:
        is_short = entry.covered_min <= entry.count < entry.job.min_trainers
        if is_short and entry.reason in CURED_BY_MOVE:
            yield Explain(entry.key, own_quota_lack(book, entry, entry.uncovered))


def _asks(book: Book, entry: JobEntry) -> bool:
    """Returns whether a job's next size stays within its queue's own quota."""
    step = book.next_step(entry)
    lends = book.quotas.borrowing.covers(entry.job.queue)
    return step > 0 and lends and not book.quotas.borrows(entry.job, step)


class _Return:
    """The terms of a return: queues give trainers until they borrow nothing."""

    gives_more = True

    def __init__(self, book: Book, owner: JobEntry) -> None:
        self._book = book
        self._owner = owner

    def donors(self, donors: Donors) -> dict[str, JobEntry]:
        """Returns the jobs in borrowing queues, the lowest priority first, then the largest share."""
        borrowers = [entry for entry in donors.all() if self._borrowed(entry, {})]
        return {entry.key: entry for entry in sorted(borrowers, key=lambda d: d.facts.priority)}

    def may_give(self, donor: JobEntry, given: int, freed: Resources) -> bool:  # noqa: ARG002
        """Returns whether the donor's queue still borrows before the last of these trainers is released."""
        before = dict(freed)
        amounts.subtract(before, donor.job.requests)
        return bool(self._borrowed(donor, before))

    def may_leave(self, pod: Pod) -> bool:
        """Returns whether a trainer has a node; one without a node soon gets one or is withdrawn."""
        return bool(pod.node)

    def explain(self, donor: JobEntry) -> tuple[Reason, Figures]:
        """Explains a return by the use and the nominal quota of the donor's queue."""
        requests = self._owner.job.requests
        figures = self._book.quotas.borrowing.figures(donor.job.queue, requests)
        return Reason.SHARE_RETURNED, {**figures, "to": self._owner.key}

    def _borrowed(self, donor: JobEntry, freed: Resources) -> list[str]:
        """Returns the resources that the donor's queue still borrows after `freed` is released."""
        requests, queue = self._owner.job.requests, donor.job.queue
        return self._book.quotas.borrowing.borrowed(queue, requests, freed)
