"""Rule 9, stability: trainers move between jobs only for a clear gain, a few at a time.

A move ends trainers, so it must be worth it: the donor stays at or above the receiver, the gap
exceeds the threshold, and the trainers have run for a minimum time. Each move makes the two jobs
more equal, so moves cannot cycle.
"""

from heapq import heapify, heappop, heappush

from policy.cluster.horizon import Horizon
from policy.cluster.snapshot import Pod, Resources
from policy.decisions import Figures
from policy.planning.cycle_state import CycleState
from policy.planning.job_draft import JobDraft
from policy.planning.plan import FailedMove, MoveKey
from policy.planning.rules.moves import Donors, Move
from policy.planning.rules.receivers import lacking, may_receive, next_step, rank
from policy.reasons import Reason

_SLACK = 1e-9
"""Shares are sums of floats; equal ones may differ in the last digit."""
_MAX_NODES_EXAMINED = 1_000
"""Nodes that one plan examines for moves that failed before; they take some 15 ms."""


def rebalance(state: CycleState) -> None:
    """Moves trainers from the jobs with the largest share to those with the smallest.

    Not while services reclaim capacity, because they decide how much is left to share. At most
    `state.moves` trainers are on the move at one time, except for one job's step to its next
    allowed size.
    """
    if state.burst:
        return
    moves = state.moves - _count_leaving(state)
    poor = lacking(state)
    heapify(poor)
    donors = Donors(state)
    deferred = _failed_recently(state)
    ruled_out_nodes: dict[MoveKey, set[str]] = {}
    while moves > 0 and poor:
        *_, receiver = heappop(poor)
        key = _move_key(state, receiver)
        if key in state.failed_moves:
            continue
        if key in deferred:
            state.failed_moves[key] = deferred[key]
            state.deferred = True
            continue
        terms = _FairShare(state, receiver)
        move = Move(state, receiver, donors, terms, ruled_out_nodes.setdefault(key, set()))
        if not move.possible:
            state.failed_moves[key] = FailedMove(state.now_s, move.nodes_examined)
        elif len(move.victims) > moves and moves < state.moves:
            return  # earlier moves must finish first
        else:
            move.carry_out()
            moves -= len(move.victims)
            for donor in {draft.key: draft for draft, _ in move.victims}.values():
                donors.changed(donor)
            if may_receive(state, receiver):
                heappush(poor, (*rank(state, receiver), receiver))


def _count_leaving(state: CycleState) -> int:
    """Number of trainers that were moved and whose capacity is coming.

    One whose node is lost, or that is overdue, may hang for hours. Others that leave do not count:
    whoever deletes trainers of their own again and again would keep all their surplus.
    """
    horizon = Horizon.of(state.now_s, state.policy.tiers.grace_seconds)
    count = 0
    for uid in state.history.moved & state.cluster.leaving.keys():
        pod = state.cluster.leaving[uid]
        node = state.cluster.nodes.get(pod.node)
        lost = node is None or node.is_lost(state.now_s)
        count += pod.leaves_within(horizon) and not lost
    return count


def _failed_recently(state: CycleState) -> dict[MoveKey, FailedMove]:
    """Moves that failed recently and that this plan does not try again.

    The oldest failures are tried again first, as many as one plan has time for. On a cluster of
    some hundred nodes that is all of them.
    """
    budget = _MAX_NODES_EXAMINED
    deferred: dict[MoveKey, FailedMove] = {}
    failed = state.history.failed_moves
    oldest_first = sorted(failed, key=lambda w: (failed[w].at_s, failed[w].nodes_examined, repr(w)))
    for position, key in enumerate(oldest_first):
        budget -= failed[key].nodes_examined
        if position and budget < 0:
            deferred[key] = failed[key]
    return deferred


def _move_key(state: CycleState, receiver: JobDraft) -> MoveKey:
    """All that a move depends on: if it fails for one job, it fails for richer jobs too."""
    job = receiver.job
    shape = tuple(sorted(job.requests.items()))
    scope = state.quotas.scope(job)
    step, measure = next_step(state, receiver), receiver.trainer_measure
    reason, priority = receiver.reason, receiver.priority
    return MoveKey(shape, job.constraints, reason, step, measure, scope, priority)


class _FairShare:
    """The terms of rule 9: the donor stays at or above the receiver, and the gap is large enough.

    A job of lower priority gives whatever the shares are, one of higher priority nothing. What a queue
    has of its own quota goes to no other queue that would borrow it: it would be asked back.
    """

    gives_more = False

    def __init__(self, state: CycleState, receiver: JobDraft) -> None:
        self._state = state
        self._receiver = receiver
        self._step = next_step(state, receiver)
        self._after = state.expected_measure(receiver, self._step)
        self._borrows = state.quotas.borrows(receiver.job, self._step)

    def donors(self, donors: Donors) -> dict[str, JobDraft]:
        """Those with a share that is larger by the threshold, and those of lower priority."""
        state, receiver = self._state, self._receiver
        gain = 1 + state.policy.stability.gain_threshold
        least = max(state.expected_measure(receiver) * gain, self._after)
        return donors.above(least - _SLACK, receiver.priority)

    def may_give(self, donor: JobDraft, given: int, freed: Resources) -> bool:
        """Whether the move makes the two more equal: the donor stays at or above the receiver."""
        if self._borrows and not self._state.quotas.lends(donor.job, self._receiver.job, freed):
            return False
        if donor.priority != self._receiver.priority:
            return donor.priority < self._receiver.priority
        return self._state.expected_measure(donor, -given) >= self._after - _SLACK

    def may_leave(self, pod: Pod) -> bool:
        """Whether a trainer has run for the minimum time."""
        first_seen, now_s = self._state.cluster.first_seen, self._state.now_s
        since_s = first_seen.started_s(pod, now_s) or first_seen.created_s(pod, now_s)
        return bool(pod.node) and now_s - since_s >= self._state.policy.stability.min_run_seconds

    def explain(self, donor: JobDraft) -> tuple[Reason, Figures]:
        """The shares of the two jobs."""
        receiver = self._receiver
        return Reason.FAIR_SHARE, {
            "to": receiver.key,
            "to_trainers": receiver.count,
            "to_share": self._state.expected_measure(receiver),
            "of": donor.key,
            "of_trainers": donor.count,
            "of_share": self._state.expected_measure(donor),
        }
