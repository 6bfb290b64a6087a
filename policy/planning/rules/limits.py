"""Rules 2, 8 and 10, limits, allowed sizes and reserve: releases trainers above a limit."""

from heapq import heapify, heappop, heappush

from policy.names import Tier
from policy.planning import ceilings, vacancy
from policy.planning.cycle_state import CycleState
from policy.planning.job_draft import JobDraft
from policy.planning.rules import creation_backoffs
from policy.reasons import Reason


def release_excess(state: CycleState) -> None:
    """Releases trainers of stopped jobs, and those above max or quota.

    A quota takes no job below its minimum. A job whose annotations became invalid keeps its
    trainers until they are corrected.
    """
    for draft in state.drafts:
        if draft.job.error and not draft.stopped:
            continue
        allowed = _allowed_count(draft)
        reason = Reason.JOB_STOPPED if draft.stopped else Reason.ABOVE_MAX
        _cancel_absent(state, draft, min(draft.absent, max(0, draft.count - allowed)))
        for pod in draft.live[: max(0, len(draft.live) - allowed)]:
            state.release(draft, pod, reason, {"live": draft.initial_count, "wanted": allowed})
        for pod in draft.live[:] if draft.excess and not draft.stopped else ():
            if pod.uid in draft.excess and not pod.node:
                state.release(draft, pod, Reason.ABOVE_MIN, {"min": draft.job.min_trainers})
        while draft.absent and draft.count > draft.covered_min and state.quotas.exceeded(draft.job):
            _cancel_absent(state, draft, 1)
        while (victim := state.quotas.reliever(draft.job, draft.spare)) is not None:
            state.release(draft, victim, Reason.QUOTA_REACHED, state.quotas.lack(draft.job, 0))


def _cancel_absent(state: CycleState, draft: JobDraft, absent: int) -> None:
    """Takes back trainers that the built-in controller should create and has not created yet."""
    draft.cancel_absent(absent)
    state.quotas.unreserve(draft.job, absent)


def _allowed_count(draft: JobDraft) -> int:
    """Number of live trainers that a job may keep: missing guaranteed ones count against it."""
    if draft.stopped:
        return 0
    if not draft.job.managed:
        return draft.job.max_trainers
    present = draft.guaranteed - draft.stranded
    missing = max(0, draft.covered_min - present) if draft.grows else 0
    return draft.job.max_trainers + draft.stranded - missing


def release_to_allowed_size(state: CycleState) -> None:
    """Releases surplus of jobs whose number of trainers lies between two allowed sizes."""
    for draft in state.drafts:
        size = ceilings.floor_size(state.policy, draft.job, draft.count)
        excess = draft.count - size
        if draft.grows and draft.job.managed and excess > 0 and not draft.paused:
            creation_backoffs.record_size(state, draft, excess)
            for pod in draft.surplus[:excess]:
                figures = {"live": draft.initial_count, "size": size}
                state.release(draft, pod, Reason.SIZE_NOT_ALLOWED, figures)


def vacate_nodes(state: CycleState) -> None:
    """Releases surplus from nodes that nothing else has needed for a while.

    An autoscaler without a priority cut-off, such as Karpenter, would keep such a node for it.
    """
    after_s = state.policy.autoscaling.vacate_after_seconds
    needed_soon = {node for draft in state.drafts for node in draft.creates[Tier.GUARANTEED]}
    unneeded = vacancy.unneeded_nodes(state.cluster, state.policy) - needed_soon
    for draft in state.drafts if unneeded else ():
        for pod in draft.spare:
            since_s = state.history.unneeded_since.get(pod.node, state.now_s)
            if pod.node in unneeded and state.now_s - since_s >= after_s:
                figures = {"unneeded_s": int(state.now_s - since_s)}
                state.release(draft, pod, Reason.NODE_NOT_NEEDED, figures)


def restore_reserve(state: CycleState) -> None:
    """Releases surplus, a few trainers at a time, while more is in use than the reserve allows.

    Not during a burst: services then get capacity through preemption, and only once they run is
    it known how much remains.
    """
    if state.burst:
        return
    moves = state.moves if state.load.exceeded() else 0
    richest = [(*_richness(state, draft), position) for position, draft in enumerate(state.drafts)]
    heapify(richest)
    while moves > 0 and richest and (exceeded := state.load.exceeded()):
        *_, position = heappop(richest)
        draft = state.drafts[position]
        if not (draft.spare and any(draft.job.requests.get(name, 0) > 0 for name in exceeded)):
            continue
        state.release(draft, draft.spare[0], Reason.RESERVE_RESTORED, state.load.excess())
        heappush(richest, (*_richness(state, draft), position))
        moves -= 1


def _richness(state: CycleState, draft: JobDraft) -> tuple[bool, int, float]:
    """Sort key of jobs that give: queues that borrow, the lowest priority, the largest share."""
    queue = draft.job.queue
    borrowed = state.quotas.borrowing.borrowed(queue, draft.job.requests)
    return not borrowed, draft.priority, -state.expected_measure(draft)
