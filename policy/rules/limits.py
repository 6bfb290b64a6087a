"""Rules 2 and 3, reserve and ceilings, where they take: what is too much is given up."""

from heapq import heapify, heappop, heappush

from policy import ceilings
from policy.reasons import Reason
from policy.work import Share, Work


def trim(work: Work) -> None:
    """Releases what a job must not have: stopped, above max, above quota.

    For a quota no job falls below its minimum.

    A job whose annotations became unreadable keeps what it has until somebody corrects them.
    """
    for share in work.shares:
        if share.job.error and not share.stopped:
            continue
        wanted = _wanted(share)
        reason = Reason.JOB_STOPPED if share.stopped else Reason.ABOVE_MAX
        _forgo(work, share, min(share.absent, max(0, share.count - wanted)))
        for pod in share.live[: max(0, len(share.live) - wanted)]:
            work.release(share, pod, reason, {"live": share.found, "wanted": wanted})
        while (
            share.absent
            and share.count > share.job.min_trainers
            and work.quotas.exceeded(share.job)
        ):
            _forgo(work, share, 1)
        while share.spare and work.quotas.exceeded(share.job):
            work.release(
                share, share.spare[0], Reason.QUOTA_REACHED, work.quotas.lack(share.job, 0)
            )


def _forgo(work: Work, share: Share, absent: int) -> None:
    """Takes back what the built-in controller was told to make and has not made."""
    share.forgo(absent)
    work.quotas.take(share.job, -absent)


def _wanted(share: Share) -> int:
    """The most of its live trainers that a job may keep: guaranteed ones to come count too."""
    if share.stopped:
        return 0
    if not share.job.managed:
        return share.job.max_trainers
    standing = share.guaranteed - share.stranded
    missing = max(0, share.job.min_trainers - standing) if share.grows else 0
    return share.job.max_trainers + share.stranded - missing


def settle_sizes(work: Work) -> None:
    """Releases down to an allowed size where a job has a number of trainers between two."""
    for share in work.shares:
        size = ceilings.floor_size(work.policy, share.job, share.count)
        excess = share.count - size
        if share.grows and share.job.managed:
            for pod in share.surplus[:excess]:
                figures = {"live": share.found, "size": size}
                work.release(share, pod, Reason.SIZE_NOT_ALLOWED, figures)


def restore_reserve(work: Work) -> None:
    """Releases surplus, a few at a time, while more is in use than the reserve allows.

    Not while a burst is on: what services take now they take through preemption, and what is
    left over is known when they run.
    """
    if work.burst:
        return
    moves = work.moves if work.load.over() else 0
    rich = [(-work.expected(share), place) for place, share in enumerate(work.shares)]
    heapify(rich)
    while moves > 0 and rich and (over := work.load.over()):
        _, place = heappop(rich)
        share = work.shares[place]
        if not (share.spare and any(share.job.requests.get(name, 0) > 0 for name in over)):
            continue
        work.release(share, share.spare[0], Reason.RESERVE_RESTORED, work.load.excess())
        heappush(rich, (-work.expected(share), place))
        moves -= 1
