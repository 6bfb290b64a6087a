"""Rule 9, stability: trainers move between jobs only for a clear gain, a few at a time.

A move ends trainers, so it must be worth it: the donor's share stays at or above the receiver's, the gap
exceeds the threshold, and the trainers have run for a minimum time. Each move makes the two shares more
equal, so jobs never exchange trainers back and forth.
"""

from heapq import heapify, heappop, heappush

from policy.cluster.horizon import Horizon
from policy.cluster.snapshot import Pod, Resources
from policy.decisions import Figures
from policy.planning.book import Book
from policy.planning.decisions import Decisions, Remember
from policy.planning.job_entry import JobEntry
from policy.planning.plan import FailedMove, MoveKey
from policy.planning.rules.moves import Donors, Move
from policy.planning.rules.receivers import lacking, may_receive, rank
from policy.reasons import Reason

_SLACK = 1e-9
"""Tolerance in comparisons of shares: they are sums of floats, so equal shares may differ in the last digit."""
_MAX_NODES_EXAMINED = 1_000
"""Number of nodes that one plan examines for moves that failed before; this takes 15 ms."""


def rebalance(book: Book) -> Decisions[None]:
    """Moves trainers from the jobs with the largest share to the jobs with the smallest.

    The rule waits while services reclaim capacity, because they determine how much remains to share. At
    most `Book.moves` trainers are moving at the same time, except that one job's step to its next allowed
    size may exceed this number.
    """
    if book.burst:
        return
    moves = book.moves - _count_leaving(book)
    poor = yield from lacking(book)
    heapify(poor)
    donors = Donors(book)
    deferred = _failed_recently(book)
    failed: dict[MoveKey, FailedMove] = {}
    ruled_out_nodes: dict[MoveKey, set[str]] = {}
    while moves > 0 and poor:
        *_, receiver = heappop(poor)
        key = _move_key(book, receiver)
        if key in failed:
            continue
        if key in deferred:
            failed[key] = deferred[key]
            continue
        terms = _FairShare(book, receiver)
        move = Move(book, receiver, donors, terms, ruled_out_nodes.setdefault(key, set()))
        if not move.possible:
            failed[key] = FailedMove(book.now_s, move.nodes_examined)
        elif len(move.victims) > moves and moves < book.moves:
            break  # earlier moves must finish first
        else:
            yield from move.decisions()
            moves -= len(move.victims)
            for donor in {entry.key: entry for entry, _ in move.victims}.values():
                donors.changed(donor)
            if (yield from may_receive(book, receiver)):
                heappush(poor, (*rank(book, receiver), receiver))
    yield Remember(failed_moves=failed, is_deferred=not failed.keys().isdisjoint(deferred))


def _count_leaving(book: Book) -> int:
    """Returns the number of moved trainers that are about to end.

    A trainer that is overdue, or whose node is lost, may hang for hours and does not count. Trainers that
    leave for other reasons do not count either: otherwise a user could delete trainers over and over to
    stop all moves and keep the surplus.
    """
    horizon = Horizon.of(book.now_s, book.policy.tiers.grace_seconds)
    count = 0
    for uid in book.history.moved & book.cluster.leaving.keys():
        pod = book.cluster.leaving[uid]
        node = book.cluster.nodes.get(pod.node)
        lost = node is None or node.is_lost(book.now_s)
        count += pod.leaves_within(horizon) and not lost
    return count


def _failed_recently(book: Book) -> dict[MoveKey, FailedMove]:
    """Returns the moves that failed recently and that this plan does not try again.

    The oldest failures are tried again first, as many as one plan has time for. On a cluster with a few
    hundred nodes, all failed moves are tried again.
    """
    budget = _MAX_NODES_EXAMINED
    deferred: dict[MoveKey, FailedMove] = {}
    failed = book.history.failed_moves
    oldest_first = sorted(failed, key=lambda w: (failed[w].at_s, failed[w].nodes_examined, repr(w)))
    for position, key in enumerate(oldest_first):
        budget -= failed[key].nodes_examined
        if position and budget < 0:
            deferred[key] = failed[key]
    return deferred


def _move_key(book: Book, receiver: JobEntry) -> MoveKey:
    """Returns everything that a move depends on: if it fails for one job, it fails for richer jobs too."""
    job = receiver.job
    shape = tuple(sorted(job.requests.items()))
    scope = book.quotas.scope(job)
    step, measure = book.next_step(receiver), receiver.facts.trainer_measure
    reason, priority = receiver.reason, receiver.facts.priority
    return MoveKey(shape, job.constraints, reason, step, measure, scope, priority)


class _FairShare:
    """The terms of rule 9: the donor's share stays at or above the receiver's, and the gap is large enough.

    A job of lower priority gives trainers whatever the shares are; a job of higher priority gives none. A
    queue gives no part of its own quota to a queue that would borrow it, because it would ask for its
    return.
    """

    gives_more = False

    def __init__(self, book: Book, receiver: JobEntry) -> None:
        self._book = book
        self._receiver = receiver
        self._step = book.next_step(receiver)
        self._after = book.expected_measure(receiver, self._step)
        self._borrows = book.quotas.borrows(receiver.job, self._step)

    def donors(self, donors: Donors) -> dict[str, JobEntry]:
        """Returns the jobs whose share is larger by the threshold, and the jobs of lower priority."""
        book, receiver = self._book, self._receiver
        gain = 1 + book.policy.stability.gain_threshold
        least = max(book.expected_measure(receiver) * gain, self._after)
        return donors.above(least - _SLACK, receiver.facts.priority)

    def may_give(self, donor: JobEntry, given: int, freed: Resources) -> bool:
        """Returns whether the move makes both shares more equal: the donor's stays at or above the other."""
        if self._borrows and not self._book.quotas.lends(donor.job, self._receiver.job, freed):
            return False
        if donor.facts.priority != self._receiver.facts.priority:
            return donor.facts.priority < self._receiver.facts.priority
        return self._book.expected_measure(donor, -given) >= self._after - _SLACK

    def may_leave(self, pod: Pod) -> bool:
        """Returns whether a trainer has run for the minimum time."""
        first_seen, now_s = self._book.cluster.first_seen, self._book.now_s
        since_s = first_seen.started_s(pod, now_s) or first_seen.created_s(pod, now_s)
        return bool(pod.node) and now_s - since_s >= self._book.policy.stability.min_run_seconds

    def explain(self, donor: JobEntry) -> tuple[Reason, Figures]:
        """Explains a move by the shares of the two jobs."""
        receiver = self._receiver
        return Reason.FAIR_SHARE, {
            "to": receiver.key,
            "to_trainers": receiver.count,
            "to_share": self._book.expected_measure(receiver),
            "of": donor.key,
            "of_trainers": donor.count,
            "of_share": self._book.expected_measure(donor),
        }
