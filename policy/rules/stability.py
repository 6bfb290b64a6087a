"""Rule 6, stability: trainers move between jobs only for a clear gain, a few at a time.

A move ends a trainer, so it must pay: the giver stays at or above the taker, the gap is wider
than the threshold, and the trainer has run for a while. Each move makes the two more equal,
so moves cannot go round in circles.
"""

from policy import amounts, ceilings
from policy.index import is_surplus
from policy.reasons import Reason
from policy.snapshot import Pod
from policy.work import Share, Work

_SLACK = 1e-9
"""Shares are sums of floats; equal ones may differ in the last digit."""


def rebalance(work: Work) -> None:
    """Moves trainers from jobs with much to jobs with little.

    Not while services take capacity back: they decide what there is to share.
    """
    if work.burst:
        return
    _expect_coming(work)
    leaving = sum(
        1
        for here in work.index.bound.values()
        for pod in here.values()
        if pod.deleting and is_surplus(pod)
    )
    moves = work.moves - leaving
    poor = [share for share in work.shares if share.reason is Reason.NO_ROOM and share.grows]
    while moves > 0 and poor:
        receiver = min(poor, key=lambda s: (work.expected(s), s.job.key))
        if _move_to(work, receiver):
            moves -= 1
        else:
            poor.remove(receiver)


def _expect_coming(work: Work) -> None:
    """Deals room that leaving pods will free to the jobs that wait for some."""
    room = work.room
    later = {name: room.later(name) for name in sorted(room.coming) if name in room.now}
    hungry = [share for share in work.shares if share.reason is Reason.NO_ROOM]
    while hungry and later:
        share = min(hungry, key=lambda s: (work.expected(s), s.job.key))
        job = share.job
        fitting = (
            name
            for name in room.open_nodes(job.constraints, pooled=True)
            if name in later and amounts.within(job.requests, later[name])
        )
        node = next(fitting, "")
        if not node or share.count + share.expected >= job.max_trainers:
            hungry.remove(share)
            continue
        amounts.subtract(later[node], job.requests)
        amounts.subtract(room.coming[node], job.requests)
        share.expected += 1


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
        for pod in donor.surplus:
            if pod.node in usable and _movable(work, pod):
                room = work.room.later(pod.node)
                amounts.add(room, pod.requests)
                if amounts.within(job.requests, room):
                    _move(work, donor, pod, receiver)
                    return True
    return False


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


def _move(work: Work, donor: Share, pod: Pod, receiver: Share) -> None:
    detail = f"{receiver.job.key} has {receiver.count}, {donor.job.key} has {donor.count}"
    work.release(donor, pod, Reason.FAIR_SHARE, detail)
    coming = work.room.coming.setdefault(pod.node, {})
    amounts.add(coming, pod.requests)
    amounts.subtract(coming, receiver.job.requests)
    receiver.expected += 1
