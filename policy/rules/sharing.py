"""Rule 5, sharing: what is left goes, trainer by trainer, to the job with the least share.

Weighted max-min fairness by progressive filling (Bertsekas and Gallager, "Data Networks");
with the dominant share as measure it is DRF (Ghodsi et al. 2011).
"""

from heapq import heapify, heappop, heappush

from policy import amounts, ceilings
from policy.names import Tier
from policy.reasons import Reason
from policy.room import When
from policy.rules.admission import backing_off
from policy.snapshot import Pod
from policy.work import Share, Work

_LEAST_IN_FLIGHT = 8
_IN_FLIGHT = 0.04
"""Share of the trainers wanted that may wait for the scheduler at one time: no pile, ever."""
_DIGITS = 12
"""Shares are sums of floats; equal ones may differ in the last digits."""
_PUT_ASIDE = 4
"""So many times the patience with a trainer without room is the patience with one that has some."""


def settle_waiting(work: Work) -> None:
    """Gives waiting surplus trainers their slots; takes those back that found none in time.

    One that has room may have been put aside by kube-scheduler, which tries such pods again only
    after minutes; a new one comes to the front of its queue.
    """
    patience = work.policy.stability.withdraw_after_seconds
    for share in work.shares:
        for pod in share.waiting:
            node = _slot_of(work, pod)
            waited_s = work.now_s - pod.created_s if share.job.managed else 0.0
            if node and not 0 < _PUT_ASIDE * patience <= waited_s:
                work.room.take(node, pod.requests)
                work.load.take(pod.requests)
                work.promised.add(pod.uid)
            elif node:
                why = "kube-scheduler did not take the room"
                _withdraw(work, share, pod, why, waited_s)
            elif waited_s >= patience and share.job.managed:
                _withdraw(work, share, pod, "no node had room", waited_s)


def _withdraw(work: Work, share: Share, pod: Pod, why: str, waited_s: float) -> None:
    work.release(share, pod, Reason.NOT_SCHEDULED, {"why": why, "waited_s": int(waited_s)})


def _slot_of(work: Work, pod: Pod) -> str:
    """Where a waiting trainer has room: where it was planned, or elsewhere; "" for nowhere."""
    where = pod.planned
    open_nodes = work.room.open_nodes(pod.constraints, pooled=True)
    usable = where in open_nodes and where not in work.cooling
    if usable and amounts.within(pod.requests, work.room.now(where)):
        return where
    return work.room.slot(pod.requests, pod.constraints, work.cooling)


def grow(work: Work) -> bool:
    """Adds surplus trainers where there is room now.

    Returns:
        False where more could be made, but enough are on their way for now.
    """
    budget = max(_LEAST_IN_FLIGHT, int(_IN_FLIGHT * work.trainers))
    in_flight = sum(len(share.waiting) for share in work.shares)
    allowed = budget - in_flight
    heap = [(*_rank(work, share), i) for i, share in enumerate(work.shares)]
    heapify(heap)
    while heap:
        *_, i = heappop(heap)
        share = work.shares[i]
        step = 0 if share.expected else _next_step(work, share)
        if step and allowed < min(step, budget):
            paused = [share, *(work.shares[entry[-1]] for entry in heap)]
            _explain_pause(work, paused, budget - allowed)
            return False
        if step and _add(work, share, step):
            allowed -= step
        elif not _await(work, share):
            continue
        heappush(heap, (*_rank(work, share), i))
    return True


def _rank(work: Work, share: Share) -> tuple[float, float, float, str]:
    """The least share first.

    Among equals the one that gains most by a trainer, which is what lexicographic max-min asks
    for; then the one that has least of its own wish, then the key.
    """
    wish = (share.count + share.expected) / max(1, share.job.max_trainers)
    return round(work.expected(share), _DIGITS), -share.unit, wish, share.key


def _next_step(work: Work, share: Share) -> int:
    """How many trainers its next size needs; 0, with the reason, where it must not grow."""
    job = share.job
    if not share.grows:
        _explain_stop(share)
    elif share.count < job.min_trainers or backing_off(work, share):
        pass  # the reason is set already
    elif (step := ceilings.next_size(work.policy, job, share.count) - share.count) <= 0:
        at_max = share.count >= job.max_trainers
        figures = {"trainers": share.count, "max": job.max_trainers}
        share.set(Reason.AT_MAX if at_max else Reason.AT_CEILING, figures)
    elif not work.quotas.allow(job, step):
        share.set(Reason.QUOTA_REACHED, work.quotas.lack(job, step))
    elif not work.load.allow(job.requests, step):
        share.set(Reason.RESERVE_HELD, work.load.lack(job.requests, step))
    else:
        return step
    return 0


def _await(work: Work, share: Share) -> bool:
    """Keeps for a job, in its turn, what leaving pods will free; False where nothing comes.

    Without this a richer job would take it, and would have to give it back.
    """
    if share.reason not in (Reason.NO_ROOM, Reason.RESERVE_HELD) or not share.admitted:
        return False
    job, wanted = share.job, share.count + share.expected
    step = ceilings.next_size(work.policy, job, wanted) - wanted
    if step <= 0 or not work.quotas.allow(job, step):
        return False
    if not work.load.allow_later(job.requests, {}, step):
        return False
    nodes: list[str] = []
    while len(nodes) < step and (node := _coming_slot(work, share, step)):
        work.room.take(node, job.requests)
        nodes.append(node)
    for node in nodes:
        work.room.give(node, job.requests)
    if len(nodes) < step:
        return False
    for node in nodes:
        work.expect(share, node)
    return True


def _coming_slot(work: Work, share: Share, step: int) -> str:
    """Where one more trainer of a job fits when all that leaves has left; "" for nowhere.

    Where its next size takes several, some of them may have room already.
    """
    job = share.job
    coming = work.room.slot(job.requests, job.constraints, when=When.LATER)
    if coming or step == 1:
        return coming or free_slot(work, share)
    return work.room.slot(job.requests, job.constraints, work.cooling)


def free_slot(work: Work, share: Share) -> str:
    """Where a job that lacks no room, but load or quota, has room now; "" for nowhere."""
    if share.reason is Reason.NO_ROOM:
        return ""
    return work.room.slot(share.job.requests, share.job.constraints, work.cooling)


def _explain_pause(work: Work, shares: list[Share], waiting: int) -> None:
    """Says of the jobs that could have more that they will, and of the others why not."""
    for share in shares:
        if _next_step(work, share):
            share.set(Reason.GROWING, {"waiting": waiting})


def _explain_stop(share: Share) -> None:
    if share.job.error:
        share.set(Reason.INVALID, {"error": share.job.error})
    elif share.job.suspended:
        share.set(Reason.SUSPENDED)
    elif share.ending:
        share.set(Reason.ENDING, {"succeeded": max(1, share.job.books.succeeded)})
    else:
        share.set(Reason.ENDING)


def _add(work: Work, share: Share, step: int) -> bool:
    """Gives a job `step` more trainers, all or none."""
    job = share.job
    nodes: list[str] = []
    while len(nodes) < step:
        node = work.room.slot(job.requests, job.constraints, work.cooling)
        if not node:
            for taken in nodes:
                work.untake(job, taken)
            share.set(Reason.NO_ROOM, {"trainers": share.count, "needs": job.requests})
            return False
        nodes.append(node)
        work.take(job, node)
    share.make(Tier.SURPLUS, nodes)
    return True
