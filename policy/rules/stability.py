"""Rule 6, stability: trainers move between jobs only for a clear gain, a few at a time.

A move ends a trainer, so it must pay: the giver stays at or above the taker, the gap is wider
than the threshold, and the trainer has run for a while. Each move makes the two more equal,
so moves cannot go round in circles.
"""

from policy import amounts, ceilings
from policy.index import is_surplus
from policy.reasons import Reason
from policy.rules.sharing import free_slot
from policy.snapshot import Pod
from policy.work import Share, Work

_SLACK = 1e-9
"""Shares are sums of floats; equal ones may differ in the last digit."""
_WANTS = (Reason.NO_ROOM, Reason.RESERVE_HELD, Reason.QUOTA_REACHED)
"""Reasons that go away when another job has less."""


def rebalance(work: Work) -> None:
    """Moves trainers from jobs with much to jobs with little.

    Not while services take capacity back: they decide what there is to share.
    """
    if work.burst:
        return
    leaving = sum(
        1
        for here in work.index.bound.values()
        for pod in here.values()
        if pod.deleting and is_surplus(pod)
    )
    moves = work.moves - leaving
    poor = [share for share in work.shares if share.reason in _WANTS and share.admitted]
    while moves > 0 and poor:
        receiver = min(poor, key=lambda s: (work.expected(s), s.job.key))
        if _move_to(work, receiver):
            moves -= 1
        else:
            poor.remove(receiver)


def _move_to(work: Work, receiver: Share) -> bool:
    """Releases one trainer of a richer job where the receiver then fits; False where none."""
    job = receiver.job
    step = ceilings.next_size(work.policy, job, receiver.count) - receiver.count
    if step != 1 or receiver.count + receiver.expected >= job.max_trainers:
        return False
    usable = frozenset(work.room.open_nodes(job.constraints, pooled=True)) - work.cooling
    donors = sorted(
        (share for share in work.shares if _may_give(work, share, receiver)),
        key=lambda s: (-work.expected(s), s.job.key),
    )
    for donor in donors:
        if not work.quotas.allow_instead(job, donor.job):
            continue
        for pod in donor.surplus:
            if _movable(work, pod) and (node := _slot_after(work, pod, receiver, usable)):
                _move(work, donor, pod, receiver, node)
                return True
    return False


def _slot_after(work: Work, pod: Pod, receiver: Share, usable: frozenset[str]) -> str:
    """Where one more trainer of the receiver fits once `pod` has left; "" for nowhere."""
    requests = receiver.job.requests
    if not pod.node or not work.load.allow_later(requests, pod.requests):
        return ""
    if pod.node in usable:
        room = work.room.later(pod.node)
        amounts.add(room, pod.requests)
        if amounts.within(requests, room):
            return pod.node
    return free_slot(work, receiver)


def _may_give(work: Work, donor: Share, receiver: Share) -> bool:
    """Whether a move makes the two more equal by more than the threshold, and is allowed."""
    if donor is receiver or not donor.surplus or donor.stopped:
        return False
    if ceilings.floor_size(work.policy, donor.job, donor.count - 1) != donor.count - 1:
        return False
    gain = 1 + work.policy.stability.gain_threshold
    return (
        work.expected(donor, -1) >= work.expected(receiver, +1) - _SLACK
        and work.expected(donor) >= work.expected(receiver) * gain - _SLACK
    )


def _movable(work: Work, pod: Pod) -> bool:
    age_s = work.now_s - (pod.started_s or pod.created_s)
    return age_s >= work.policy.stability.min_run_seconds


def _move(work: Work, donor: Share, pod: Pod, receiver: Share, node: str) -> None:
    detail = f"{receiver.job.key} has {receiver.count}, {donor.job.key} has {donor.count}"
    work.release(donor, pod, Reason.FAIR_SHARE, detail)
    work.expect(receiver, node)
