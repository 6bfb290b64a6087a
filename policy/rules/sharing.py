"""Rules 4 and 7, sharing: remaining capacity goes, trainer by trainer, to the job with the least share.

Weighted max-min fairness by progressive filling (Bertsekas and Gallager, "Data Networks");
with the dominant share as measure it is DRF (Ghodsi et al. 2011).
"""

from heapq import heapify, heappop, heappush

from policy import amounts, ceilings
from policy.cycle_state import CycleState, JobDraft
from policy.free_capacity import When
from policy.names import Tier
from policy.reasons import Reason
from policy.rules import creation_backoffs
from policy.rules.admission import backing_off, replacing
from policy.snapshot import Pod

_MIN_IN_FLIGHT = 8
_IN_FLIGHT = 0.04
"""Fraction of all target trainers that may wait for the scheduler at one time (at least 8)."""
_DIGITS = 12
"""Shares are sums of floats; equal ones may differ in the last digits."""
_IGNORED_FACTOR = 4
"""A waiting trainer that fits on a node is withdrawn after this multiple of the normal delay."""
_REFUSED_FACTOR = 2
"""The same for one that kube-scheduler has tried and found no node for."""


def place_waiting(state: CycleState) -> None:
    """Reserves capacity for waiting surplus trainers; withdraws those that waited too long.

    kube-scheduler may have parked a trainer that fits somewhere, and retries such pods only after
    minutes; a newly created one enters its active queue at once.
    """
    delay_s = state.policy.stability.withdraw_after_seconds
    for draft in state.drafts:
        for pod in draft.waiting:
            node = _node_of_waiting(state, pod)
            waited_s = state.now_s - pod.created_s if draft.job.managed else 0.0
            factor = _REFUSED_FACTOR if pod.refused else _IGNORED_FACTOR
            if node and not 0 < factor * delay_s <= waited_s:
                state.reserve_place(node, pod.requests)
                state.promised[pod.uid] = node
            elif node:
                cause = "kube-scheduler did not use the free capacity"
                creation_backoffs.record_unplaced(state, draft, pod)
                _withdraw(state, draft, pod, cause, waited_s)
            elif waited_s >= delay_s and draft.job.managed:
                _withdraw(state, draft, pod, "no node had room", waited_s)


def _withdraw(state: CycleState, draft: JobDraft, pod: Pod, cause: str, waited_s: float) -> None:
    state.release(draft, pod, Reason.NOT_SCHEDULED, {"why": cause, "waited_s": int(waited_s)})


def _node_of_waiting(state: CycleState, pod: Pod) -> str:
    """A node that a waiting trainer fits on: its planned node, or another; "" for none."""
    planned_node = pod.planned
    open_nodes = state.capacity.open_nodes(pod.constraints, pooled=True)
    usable = planned_node in open_nodes and planned_node not in state.closed
    if usable and amounts.within(pod.requests, state.capacity.free_now(planned_node)):
        return planned_node
    return state.capacity.cheapest_node(pod.requests, pod.constraints, state.closed)


def grow(state: CycleState) -> bool:
    """Creates surplus trainers where capacity is free now.

    Returns:
        False where more could be created, but enough trainers wait for the scheduler already. What
        stops one job alone, such as trainers that fit nowhere, does not stop the others.
    """
    budget = max(_MIN_IN_FLIGHT, int(_IN_FLIGHT * state.trainers))
    allowed = budget - _in_flight(state)
    heap = [(*_rank(state, draft), position) for position, draft in enumerate(state.drafts)]
    heapify(heap)
    while heap:
        *_, position = heappop(heap)
        draft = state.drafts[position]
        step = 0 if draft.expected_count else _next_step(state, draft)
        if step and allowed < min(step, budget):
            paused = [draft, *(state.drafts[entry[-1]] for entry in heap)]
            _explain_pause(state, paused, budget - allowed)
            return False
        if step and _own_in_flight(draft) > budget - min(step, budget):
            draft.set_reason(Reason.GROWING, {"waiting": _own_in_flight(draft)})
            continue
        if step and _add_surplus(state, draft, step):
            allowed -= step
        elif not _reserve_leaving(state, draft):
            continue
        heappush(heap, (*_rank(state, draft), position))
    return True


def _in_flight(state: CycleState) -> int:
    """Number of surplus trainers of all jobs that kube-scheduler is about to place.

    Those that it cannot place count for their own job alone.
    """
    return sum(
        not creation_backoffs.is_stuck(state, draft, pod)
        for draft in state.drafts
        for pod in draft.waiting
    )


def _own_in_flight(draft: JobDraft) -> int:
    return len(draft.waiting) + len(draft.creates[Tier.SURPLUS])


def _rank(state: CycleState, draft: JobDraft) -> tuple[float, float, float, str]:
    """Sort key of jobs: the least share first.

    Among equals the job whose share rises most by one trainer, as lexicographic max-min demands;
    then the one with the smallest fraction of its own maximum, then the key.
    """
    fulfilment = (draft.count + draft.expected_count) / max(1, draft.job.max_trainers)
    measure = round(state.expected_measure(draft), _DIGITS)
    return measure, -draft.trainer_measure, fulfilment, draft.key


def _next_step(state: CycleState, draft: JobDraft) -> int:
    """Number of trainers to the next size; 0, with the reason recorded, where it must not grow."""
    job = draft.job
    if not draft.grows:
        _explain_stop(draft)
    elif draft.count < job.min_trainers or draft.awaits_nodes or backing_off(state, draft):
        pass  # the reason is set already
    elif (step := ceilings.next_size(state.policy, job, draft.count) - draft.count) <= 0:
        at_max = draft.count >= job.max_trainers
        figures = {"trainers": draft.count, "max": job.max_trainers}
        draft.set_reason(Reason.AT_MAX if at_max else Reason.AT_CEILING, figures)
    elif not state.quotas.allow(job, step):
        draft.set_reason(Reason.QUOTA_REACHED, state.quotas.lack(job, step))
    elif not state.load.allow(job.requests, step):
        draft.set_reason(Reason.RESERVE_HELD, state.load.lack(job.requests, step))
    elif not (replacing(draft, step) or creation_backoffs.holds_surplus(state, draft)):
        return step
    return 0


def _reserve_leaving(state: CycleState, draft: JobDraft) -> bool:
    """Reserves capacity that leaving pods will free for a job, when it is the job's turn.

    Otherwise a richer job would get it and would have to release it again.

    Returns:
        False where leaving pods free too little for the job's next size.
    """
    if draft.reason not in (Reason.NO_ROOM, Reason.RESERVE_HELD) or not draft.admitted:
        return False
    job, expected_count = draft.job, draft.count + draft.expected_count
    step = ceilings.next_size(state.policy, job, expected_count) - expected_count
    if step <= 0 or not state.quotas.allow(job, step):
        return False
    if not state.load.allow_later(job.requests, {}, step):
        return False
    nodes: list[str] = []
    while len(nodes) < step and (node := _leaving_slot(state, draft, step)):
        state.capacity.reserve(node, job.requests)
        nodes.append(node)
    for node in nodes:
        state.capacity.unreserve(node, job.requests)
    if len(nodes) < step:
        return False
    for node in nodes:
        state.add_expected(draft, node)
    return True


def _leaving_slot(state: CycleState, draft: JobDraft, step: int) -> str:
    """A node where one more trainer fits once leaving pods have ended; "" for none.

    Where the next size takes several trainers, some of them may fit now.
    """
    job = draft.job
    node = state.capacity.cheapest_node(job.requests, job.constraints, when=When.LATER)
    if node or step == 1:
        return node or free_slot(state, draft)
    return state.capacity.cheapest_node(job.requests, job.constraints, state.closed)


def free_slot(state: CycleState, draft: JobDraft) -> str:
    """A node with free capacity for a job that only load or quota stops; "" for none."""
    if draft.reason is Reason.NO_ROOM:
        return ""
    return state.capacity.cheapest_node(draft.job.requests, draft.job.constraints, state.closed)


def _explain_pause(state: CycleState, drafts: list[JobDraft], waiting: int) -> None:
    """Records Growing for the jobs that could grow now, and the reason for each other job."""
    for draft in drafts:
        if _next_step(state, draft):
            draft.set_reason(Reason.GROWING, {"waiting": waiting})


def _explain_stop(draft: JobDraft) -> None:
    if draft.job.error:
        draft.set_reason(Reason.INVALID, {"error": draft.job.error})
    elif draft.job.suspended:
        draft.set_reason(Reason.SUSPENDED)
    elif draft.ending:
        draft.set_reason(Reason.ENDING, {"succeeded": max(1, draft.job.accounting.succeeded)})
    else:
        draft.set_reason(Reason.ENDING)


def _add_surplus(state: CycleState, draft: JobDraft, step: int) -> bool:
    """Creates `step` more trainers of a job, all or none."""
    job = draft.job
    nodes: list[str] = []
    while len(nodes) < step:
        node = state.capacity.cheapest_node(job.requests, job.constraints, state.closed)
        if not node:
            for reserved_node in nodes:
                state.unreserve(job, reserved_node)
            draft.set_reason(Reason.NO_ROOM, {"trainers": draft.count, "needs": job.requests})
            return False
        nodes.append(node)
        state.reserve(job, node)
    draft.add_creates(Tier.SURPLUS, nodes)
    return True
