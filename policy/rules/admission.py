"""Rule 4, admission: a job's first guaranteed trainers come all together or not at all.

So two halves of jobs never block each other. Surplus of others counts as reclaimable: a new
job starts at once on a full cluster.
"""

from policy import amounts
from policy.names import Tier
from policy.reasons import Reason
from policy.snapshot import Job
from policy.work import Share, Work

_FIRST_BACKOFF_S = 10.0
_LAST_BACKOFF_S = 360.0


def backoff_s(failures_in_row: int) -> float:
    """How long after the newest of so many failures no trainer is made: 10 s doubling to 6 min.

    The figures are those of the built-in Job controller.
    """
    if failures_in_row < 1:
        return 0.0
    return min(_LAST_BACKOFF_S, _FIRST_BACKOFF_S * 2.0 ** min(failures_in_row - 1, 10))


def backing_off(work: Work, share: Share) -> bool:
    """Whether a job's trainers failed so recently that none is made now."""
    books = share.job.books
    if books.last_failure_s + backoff_s(books.failures_in_row) <= work.now_s:
        return False
    share.set(Reason.BACKING_OFF, f"{books.failures_in_row} failures in a row")
    return True


def admit(work: Work) -> None:
    """Makes missing guaranteed trainers, the oldest job first."""
    for share in sorted(work.shares, key=lambda s: (s.job.created_s, s.job.key)):
        standing = share.guaranteed - share.stranded if share.job.managed else share.count
        missing = share.job.min_trainers - standing
        if share.grows and missing > 0 and not backing_off(work, share):
            share.creates[Tier.GUARANTEED] = _place(work, share, missing)


def _place(work: Work, share: Share, missing: int) -> int:
    """How many of the missing are made; their room is taken."""
    job = share.job
    nodes: list[str] = []
    while len(nodes) < missing:
        node = ""
        if work.quotas.allow(job):
            node, _ = work.room.place(job.requests, job.constraints, pooled=True)
        if not node:
            break
        nodes.append(node)
        work.take(job, node)
    if len(nodes) < missing:
        _explain(work, share, missing - len(nodes))
        if not share.live:
            for node in nodes:
                work.untake(job, node)
            return 0
    return len(nodes)


def _explain(work: Work, share: Share, missing: int) -> None:
    job = share.job
    if not work.quotas.allow(job):
        share.set(Reason.QUOTA_REACHED, f"a quota has no room for {missing} guaranteed trainers")
    elif _fits_no_node(work, job):
        share.set(Reason.FITS_NO_NODE, "a trainer is larger than every node it may use")
    else:
        share.set(Reason.WAITING_FOR_ROOM, f"no room for {missing} guaranteed trainers")


def _fits_no_node(work: Work, job: Job) -> bool:
    return not any(
        amounts.within(job.requests, work.index.nodes[name].allocatable)
        for name in work.room.open_nodes(job.constraints, pooled=True)
    )
