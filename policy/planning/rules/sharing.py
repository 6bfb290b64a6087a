"""Rules 4 and 7, sharing: remaining capacity goes, trainer by trainer, to the job with the least share.

Weighted max-min fairness by progressive filling (Bertsekas and Gallager, "Data Networks");
with the dominant share as measure it is DRF (Ghodsi et al. 2011).
"""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from policy.cluster import amounts
from policy.cluster.snapshot import Pod
from policy.names import Tier
from policy.planning import ceilings
from policy.planning.cycle_state import CycleState
from policy.planning.free_capacity import When
from policy.planning.job_draft import JobDraft
from policy.planning.rules import creation_backoffs, quota_relief
from policy.planning.rules.admission import backing_off, replacing
from policy.planning.rules.pacing import Pacing, own_in_flight
from policy.reasons import Reason

_DIGITS = 12
"""Shares are sums of floats; equal ones may differ in the last digits."""
_IGNORED_FACTOR = 4
"""A waiting trainer that fits on a node is withdrawn after this multiple of the normal delay."""
_REFUSED_FACTOR = 2
"""The same for one that kube-scheduler has tried and found no node for."""


def place_waiting(state: CycleState) -> None:
    """Reserves capacity for waiting surplus trainers; withdraws those that waited too long.

    kube-scheduler may have parked a trainer that fits somewhere, and retries such pods only after
    minutes; a newly created one enters its active queue at once. One with scheduling gates waits for
    whoever set them: it takes no capacity, and stays.
    """
    delay_s = state.policy.stability.withdraw_after_seconds
    for draft in state.drafts:
        for pod in draft.waiting:
            if pod.gated:
                continue
            node = _node_of_waiting(state, pod)
            waited_s = state.waited_s(pod) if draft.job.managed else 0.0
            factor = _REFUSED_FACTOR if pod.refused else _IGNORED_FACTOR
            if node and not 0 < factor * delay_s <= waited_s:
                state.reserve_place(node, pod.requests)
                state.promised[pod.uid] = node
            elif node:
                cause = "kube-scheduler did not use the free capacity"
                creation_backoffs.record_unplaced(state, draft, pod)
                _withdraw(state, draft, pod, cause, waited_s)
            elif waited_s >= delay_s and draft.job.managed:
                _withdraw(state, draft, pod, "no node had capacity", waited_s)


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
        stops one job alone, such as trainers that fit nowhere, does not stop the others; nor does a
        namespace that waits because it has more than its part under way.
    """
    pacing, drafts = Pacing(state), state.drafts
    while drafts:
        _grow_in_turn(state, drafts, pacing)
        drafts = pacing.next_round()
    for draft in pacing.paused:
        if _next_step(state, draft):
            draft.paused = True
            draft.set_reason(Reason.GROWING, {"waiting": pacing.waiting})
    return not pacing.holds_moves


def _grow_in_turn(state: CycleState, drafts: Sequence[JobDraft], pacing: Pacing) -> None:
    """One round: each job gets what it may have now, the least share first."""
    heap = [(*_rank(state, draft), position) for position, draft in enumerate(drafts)]
    heapify(heap)
    while heap:
        borrows, *_, position = heappop(heap)
        draft = drafts[position]
        if not borrows and state.standing(draft)[0]:  # others of its queue have used the rest
            heappush(heap, (*_rank(state, draft), position))
            continue
        if borrows and pacing.owner_waits and _next_step(state, draft):
            pacing.pause(draft)
            continue
        step = 0 if draft.expected_count else _next_step(state, draft)
        allowed = step and pacing.allows(draft, step)
        if pacing.is_full:
            pacing.paused += [draft, *(drafts[entry[-1]] for entry in heap)]
            return
        if (
            step and not allowed and free_slot(state, draft)
        ):  # else it waits for room, not for a turn
            pacing.pause(draft)
            continue
        if step and own_in_flight(draft) > pacing.budget - min(step, pacing.budget):
            draft.set_reason(Reason.GROWING, {"waiting": own_in_flight(draft)})
            continue
        if step and _add_surplus(state, draft, step):
            pacing.add(draft, step)
        elif not _reserve_leaving(state, draft):
            continue
        heappush(heap, (*_rank(state, draft), position))


def _rank(state: CycleState, draft: JobDraft) -> tuple[bool, int, float, float, float, str]:
    """Sort key of jobs: the least share first, of those with the best standing.

    Among equals the job whose share rises most by one trainer, as lexicographic max-min demands;
    then the one with the smallest fraction of its own maximum, then the key.
    """
    fulfilment = (draft.count + draft.expected_count) / max(1, draft.job.max_trainers)
    measure = round(state.expected_measure(draft), _DIGITS)
    return *state.standing(draft), measure, -draft.trainer_measure, fulfilment, draft.key


def _next_step(state: CycleState, draft: JobDraft) -> int:
    """Number of trainers to the next size; 0, with the reason recorded, where it must not grow."""
    job = draft.job
    if not draft.grows:
        _explain_stop(draft)
    elif draft.count < draft.covered_min or draft.awaits_nodes or backing_off(state, draft):
        pass  # the reason is set already
    elif (step := ceilings.next_size(state.policy, job, draft.count) - draft.count) <= 0:
        at_max = draft.count >= job.max_trainers
        figures = {"trainers": draft.count, "max": job.max_trainers}
        draft.set_reason(Reason.AT_MAX if at_max else Reason.AT_CEILING, figures)
    elif not state.quotas.allow(job, step):
        draft.set_reason(Reason.QUOTA_REACHED, state.quotas.lack(job, step))
    elif quota_relief.holds_surplus(state, draft):
        pass
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


def _explain_stop(draft: JobDraft) -> None:
    if draft.job.error:
        reason = Reason.QUARANTINED if draft.job.quarantined else Reason.INVALID
        draft.set_reason(reason, {"error": draft.job.error})
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
