"""Rule 9, stability: trainers move between jobs only for a clear gain, a few at a time.

A move ends trainers, so it must be worth it: the donor stays at or above the receiver, the gap
exceeds the threshold, and the trainers have run for a minimum time. Each move makes the two jobs
more equal, so moves cannot cycle.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import takewhile

from policy import amounts, ceilings
from policy.cluster_state import job_key
from policy.cycle_state import CycleState
from policy.decisions import Figure
from policy.free_capacity import When
from policy.horizon import Horizon
from policy.job_draft import JobDraft
from policy.live_trainers import is_surplus, loss
from policy.plan import FailedMove, MoveKey
from policy.reasons import Reason
from policy.rules.sharing import free_slot
from policy.snapshot import Pod

_SLACK = 1e-9
"""Shares are sums of floats; equal ones may differ in the last digit."""
_MAX_NODES_EXAMINED = 1_000
"""Nodes that one plan examines for moves that failed before; they take some 15 ms."""
_CURED_BY_MOVE = (Reason.NO_ROOM, Reason.RESERVE_HELD, Reason.QUOTA_REACHED)
"""Reasons that another job's release can remove."""


def rebalance(state: CycleState) -> None:
    """Moves trainers from the jobs with the largest share to those with the smallest.

    Not while services reclaim capacity, because they decide how much is left to share. At most
    `state.moves` trainers are on the move at one time, except for one job's step to its next
    allowed size.
    """
    if state.burst:
        return
    moves = state.moves - _count_leaving(state)
    poor = [
        (state.expected_measure(draft), draft.key, draft)
        for draft in state.drafts
        if draft.reason in _CURED_BY_MOVE and draft.admitted and _may_receive(state, draft)
    ]
    heapify(poor)
    donors = _Donors(state)
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
        move = _Move(state, receiver, donors, ruled_out_nodes.setdefault(key, set()))
        if not move.possible:
            state.failed_moves[key] = FailedMove(state.now_s, move.nodes_examined)
        elif len(move.victims) > moves and moves < state.moves:
            return  # earlier moves must finish first
        else:
            move.carry_out()
            moves -= len(move.victims)
            for donor in {draft.key: draft for draft, _ in move.victims}.values():
                donors.changed(donor)
            if _may_receive(state, receiver):
                heappush(poor, (state.expected_measure(receiver), receiver.key, receiver))


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


def _may_receive(state: CycleState, draft: JobDraft) -> bool:
    """Whether a move is of use to a job: one whose last trainers came to nothing tries one.

    None where a minimum of its namespace has what a ResourceQuota leaves.
    """
    if draft.job.namespace in state.awaiting_quota:
        return False
    return not draft.expected_count or draft.job.uid not in state.creation_backoffs


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


class _Donors:
    """The jobs that have spare trainers, sorted with the largest share first."""

    def __init__(self, state: CycleState) -> None:
        self._state = state
        drafts = (draft for draft in state.drafts if draft.spare and not draft.stopped)
        self._entries = {draft.key: self._entry(draft) for draft in drafts}
        self._sorted = sorted(self._entries.values())

    def _entry(self, draft: JobDraft) -> tuple[float, str, JobDraft]:
        return -self._state.expected_measure(draft), draft.key, draft

    def changed(self, draft: JobDraft) -> None:
        """Sorts a donor again after it released trainers."""
        old = self._entries.pop(draft.key)
        del self._sorted[bisect_left(self._sorted, old)]
        if draft.spare:
            self._entries[draft.key] = self._entry(draft)
            insort(self._sorted, self._entries[draft.key])

    def above(self, least: float) -> dict[str, JobDraft]:
        """Job key -> donors with a measure of at least `least`, the largest first."""
        richest = takewhile(lambda entry: -entry[0] >= least, self._sorted)
        return {key: draft for _, key, draft in richest}


def _move_key(state: CycleState, receiver: JobDraft) -> MoveKey:
    """All that a move depends on: if it fails for one job, it fails for richer jobs too."""
    job = receiver.job
    shape = tuple(sorted(job.requests.items()))
    scope = state.quotas.scope(job)
    step, measure = _step(state, receiver), receiver.trainer_measure
    return shape, job.constraints, receiver.reason, step, measure, scope


def _step(state: CycleState, receiver: JobDraft) -> int:
    """Number of trainers that it lacks to its next allowed size; 0 where there is none."""
    expected_count = receiver.count + receiver.expected_count
    return ceilings.next_size(state.policy, receiver.job, expected_count) - expected_count


class _Move:
    """A move: trainers of richer jobs whose release lets one job reach its next allowed size.

    The constructor searches for them; nothing changes before `carry_out`.
    """

    def __init__(
        self, state: CycleState, receiver: JobDraft, donors: _Donors, ruled_out_nodes: set[str]
    ) -> None:
        """Searches for the trainers to release.

        Args:
            state: The plan so far.
            receiver: The job that gets the trainers.
            donors: The jobs that may release trainers.
            ruled_out_nodes: Nodes that cannot help this move; the search adds to them. They stay
                ruled out within a plan: receivers only become richer, so ever fewer jobs may give.
        """
        self._state = state
        self._ruled_out_nodes = ruled_out_nodes
        self.nodes_examined = 0
        """Number of nodes examined."""
        self._receiver = receiver
        self._requests = receiver.job.requests
        self._step = _step(state, receiver)
        gain = 1 + state.policy.stability.gain_threshold
        least = max(
            state.expected_measure(receiver) * gain, state.expected_measure(receiver, self._step)
        )
        self._donors = donors.above(least - _SLACK)
        self._any_node_helps = bool(free_slot(state, receiver))
        """Whether the receiver lacks quota or load and not a node, so that any release helps."""
        self._unlabelled = any(d.excess or not d.job.managed for d in self._donors.values())
        """Whether some donors' trainers have no role label (of the built-in controller, or above a minimum)."""
        self._suitable_nodes: set[str] = set()
        self._open = state.capacity.open_nodes(receiver.job.constraints, pooled=True)
        self._in_quota = state.quotas.allow(receiver.job, self._step)
        self._freed: dict[str, dict[str, int]] = {}
        self._victim_counts: Counter[str] = Counter()
        self._nodes: list[str] = []
        """Nodes where the receiver's new trainers would run."""
        self.victims: list[tuple[JobDraft, Pod]] = []
        """(donor, trainer) pairs to release."""
        enough = self._step > 0 and any(self._take_from(donor) for donor in self._donors.values())
        self.possible = enough and self._allowed()

    def _take_from(self, donor: JobDraft) -> bool:
        """Adds the trainers of a donor that help; returns whether the move is complete."""
        relieves = self._in_quota or self._state.quotas.relieves(
            self._receiver.job, self._step, donor.job
        )
        for pods in self._victim_groups(donor) if relieves else ():
            self._consider(donor, pods)
            if len(self._nodes) == self._step:
                return True
        return False

    def _victim_groups(self, donor: JobDraft) -> Iterator[list[Pod]]:
        """Groups of trainers that a donor may release together: single ones, or whole steps."""
        ruled_out_nodes = self._ruled_out_nodes
        old_enough = [
            pod
            for pod in donor.spare
            if pod.node not in ruled_out_nodes
            and self._is_suitable(pod.node)
            and _may_move(self._state, pod)
        ]
        while True:
            remaining = donor.count - self._victim_counts[donor.key]
            step = remaining - ceilings.floor_size(self._state.policy, donor.job, remaining - 1)
            if step < 1 or not self._may_give(donor, step):
                return
            if step == 1:
                candidates = [pod for pod in old_enough if not self._is_victim(pod)]
                yield from ([pod] for pod in candidates)
                return
            if len(old_enough) < step:
                return
            yield old_enough[:step]
            old_enough = old_enough[step:]

    def _is_suitable(self, node: str) -> bool:
        """Whether the receiver would fit on a node if donors released all they may there.

        Most nodes are unsuitable for a shape; each is examined once.
        """
        if self._any_node_helps:
            return bool(node)
        if node not in self._suitable_nodes:
            self.nodes_examined += 1
            fits = self._fits_without_donors(node)
            (self._suitable_nodes if fits else self._ruled_out_nodes).add(node)
            return fits
        return True

    def _fits_without_donors(self, node: str) -> bool:
        state = self._state
        if node not in self._open or node in state.closed:
            return False
        if not amounts.within(self._requests, state.capacity.free_at(node, When.RECLAIMED)):
            return False
        if self._unlabelled:
            return True
        free = state.capacity.free_later(node)
        for pod in state.cluster.bound.get(node, {}).values():
            if is_surplus(pod) and not pod.deleting and pod.uid not in state.released:
                donor = self._donors.get(job_key(pod))
                if donor is not None and _may_move(state, pod):
                    amounts.add(free, pod.requests)
        return amounts.within(self._requests, free)

    def _may_give(self, donor: JobDraft, count: int) -> bool:
        """Whether the move makes the two more equal: the donor stays at or above the receiver."""
        if donor is self._receiver:
            return False
        after = self._state.expected_measure(donor, -self._victim_counts[donor.key] - count)
        return after >= self._state.expected_measure(self._receiver, self._step) - _SLACK

    def _is_victim(self, pod: Pod) -> bool:
        return any(victim is pod for _, victim in self.victims)

    def _consider(self, donor: JobDraft, pods: list[Pod]) -> None:
        """Adds trainers to the victims if their release frees a place for the receiver."""
        if any(self._is_victim(pod) for pod in pods) or not self._may_give(donor, len(pods)):
            return
        victims = [(donor, pod) for pod in pods]
        for pod in () if self._any_node_helps else pods:
            victims += self._victims_beside(pod, victims)
        self._count_victims(victims, 1)
        before = len(self._nodes)
        while len(self._nodes) < self._step and (node := self._next_node(pods)):
            self._nodes.append(node)
        if len(self._nodes) == before:
            self._count_victims(victims, -1)

    def _victims_beside(
        self, pod: Pod, victims: list[tuple[JobDraft, Pod]]
    ) -> list[tuple[JobDraft, Pod]]:
        """Further small trainers of the node to release with `pod` so that a large one fits."""
        free = self._free_on(pod.node)
        chosen = {id(neighbour) for _, neighbour in victims}
        for _, neighbour in victims:
            if neighbour.node == pod.node:
                amounts.add(free, neighbour.requests)
        additional: list[tuple[JobDraft, Pod]] = []
        if amounts.within(self._requests, free):
            return additional
        for neighbour in sorted(self._state.cluster.bound[pod.node].values(), key=loss):
            owner = self._state.owner(neighbour) if is_surplus(neighbour) else None
            if owner is None or id(neighbour) in chosen or neighbour.uid in self._state.released:
                continue
            count = 1 + sum(draft is owner for draft, _ in [*victims, *additional])
            if self._is_victim(neighbour) or not self._gives_one(owner, neighbour, count):
                continue
            additional.append((owner, neighbour))
            amounts.add(free, neighbour.requests)
            if amounts.within(self._requests, free):
                return additional
        return []

    def _gives_one(self, owner: JobDraft, pod: Pod, count: int) -> bool:
        """Whether a job may release `count` trainers one by one, this one among them."""
        remaining = owner.count - self._victim_counts[owner.key] - count
        return (
            not pod.deleting
            and _may_move(self._state, pod)
            and remaining >= owner.job.min_trainers
            and ceilings.floor_size(self._state.policy, owner.job, remaining) == remaining
            and self._may_give(owner, count)
        )

    def _next_node(self, pods: list[Pod]) -> str:
        """A node where one more trainer of the receiver fits now; "" for none."""
        for pod in pods:
            usable = pod.node in self._open and pod.node not in self._state.closed
            if usable and amounts.within(self._requests, self._free_on(pod.node)):
                return pod.node
        if self._nodes or not any(pod.node for pod in pods):
            return ""
        return free_slot(self._state, self._receiver)

    def _free_on(self, node: str) -> dict[str, int]:
        free = self._state.capacity.free_later(node)
        amounts.add(free, self._freed.get(node, {}))
        for reserved_node in self._nodes:
            if reserved_node == node:
                amounts.subtract(free, self._requests)
        return free

    def _count_victims(self, victims: list[tuple[JobDraft, Pod]], sign: int) -> None:
        for donor, pod in victims:
            freed = self._freed.setdefault(pod.node, {})
            (amounts.add if sign > 0 else amounts.subtract)(freed, pod.requests)
            self._victim_counts[donor.key] += sign
        self.victims = self.victims + victims if sign > 0 else self.victims[: -len(victims)]

    def _allowed(self) -> bool:
        """Whether quotas and reserve hold after the move."""
        state, job = self._state, self._receiver.job
        freed: dict[str, int] = {}
        for donor, pod in self.victims:
            amounts.add(freed, pod.requests)
            state.quotas.release(donor.job, [pod])
        allowed = state.quotas.allow(job, self._step)
        for donor, pod in self.victims:
            state.quotas.restore(donor.job, [pod])
        return allowed and state.load.allow_later(job.requests, freed, self._step)

    def carry_out(self) -> None:
        """Releases the donors' trainers and reserves their capacity for the receiver."""
        receiver = self._receiver
        for donor, pod in self.victims:
            figures: dict[str, Figure] = {
                "to": receiver.key,
                "to_trainers": receiver.count,
                "to_share": self._state.expected_measure(receiver),
                "of": donor.key,
                "of_trainers": donor.count,
                "of_share": self._state.expected_measure(donor),
            }
            self._state.release(donor, pod, Reason.FAIR_SHARE, figures)
        for node in self._nodes:
            self._state.add_expected(receiver, node)


def _may_move(state: CycleState, pod: Pod) -> bool:
    first_seen, now_s = state.cluster.first_seen, state.now_s
    since_s = first_seen.started_s(pod, now_s) or first_seen.created_s(pod, now_s)
    return bool(pod.node) and now_s - since_s >= state.policy.stability.min_run_seconds
