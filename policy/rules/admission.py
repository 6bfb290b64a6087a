"""Rule 4, admission: a job's first guaranteed trainers come all together or not at all.

So two halves of jobs never block each other; the parameter servers of a job that starts are part
of it. Surplus of others counts as reclaimable: a new
job starts at once on a full cluster.
"""

from collections import Counter

from policy import amounts
from policy.decisions import Figure, time
from policy.names import Tier
from policy.reasons import Reason
from policy.rules import placing, servers
from policy.rules.placing import Place
from policy.snapshot import Pod
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
    until_s = books.last_failure_s + backoff_s(books.failures_in_row)
    if until_s <= work.now_s:
        return False
    share.set(Reason.BACKING_OFF, {"failures": books.failures_in_row, "until": time(until_s)})
    return True


def admit(work: Work) -> None:
    """Makes missing guaranteed trainers, the oldest job first."""
    for share in sorted(work.shares, key=lambda s: (s.job.created_s, s.key)):
        standing = share.guaranteed - share.stranded if share.job.managed else share.count
        missing = share.job.min_trainers - standing
        if share.grows and missing > 0 and not backing_off(work, share):
            share.make(Tier.GUARANTEED, _place(work, share, missing))


def _place(work: Work, share: Share, missing: int) -> list[str]:
    """The nodes of those of the missing that are made; their room is taken.

    The parameter servers of a job that starts come with them. Surplus in the same quota counts as
    reclaimable too: it goes if all of the missing then fit.
    """
    owed = _owed(work, share, missing)
    for giver, _ in owed:
        work.quotas.take(giver.job, -1)
    serving = servers.start(work, share, missing)
    places = [] if serving is None else _find_places(work, share, missing)
    for giver, _ in owed:
        work.quotas.take(giver.job)
    if serving is None or len(places) < missing:
        _explain(work, share, missing - len(places), served=serving is not None)
        if owed or not share.live:
            placing.give_back(work, places)
            work.quotas.take(share.job, -len(places))
            servers.call_off(work, share, serving or [])
            return []
    for giver, pod in owed:
        work.release(giver, pod, Reason.QUOTA_REACHED, {"job": share.key})
    placing.settle(work, places)
    servers.begin(work, share, serving or [])
    return [place.node for place in places]


def _find_places(work: Work, share: Share, missing: int) -> list[Place]:
    """Places for up to `missing` trainers; the room is taken."""
    job = share.job
    places: list[Place] = []
    while len(places) < missing and work.quotas.allow(job):
        requests = share.requests(first=not places)
        place = placing.find(work, requests, job.constraints, pooled=True)
        if place is None:
            break
        places.append(place)
        work.quotas.take(job)
    return places


def _owed(work: Work, share: Share, missing: int) -> list[tuple[Share, Pod]]:
    """Surplus, the richest jobs' first, that must go so that the quotas allow `missing` more.

    Empty where nothing must go, and where all surplus is not enough. Of the job itself all may
    go: each makes room for a guaranteed one.
    """
    owed: list[tuple[Share, Pod]] = []
    job, serving = share.job, share.unserved
    if work.quotas.allow(job, missing, serving):
        return owed
    waiting = {s.key: s.surplus if s.job is job else s.spare for s in work.shares}
    while not work.quotas.allow(job, missing, serving):
        givers = [
            other
            for other in work.shares
            if waiting[other.key] and work.quotas.relieves(job, missing, other.job, serving)
        ]
        if not givers:
            break
        gone = Counter(giver.key for giver, _ in owed)
        giver = max(givers, key=lambda s: (work.measure(s, s.count - gone[s.key]), s.key))
        owed.append((giver, waiting[giver.key].pop(0)))
        work.quotas.take(giver.job, -1)
    enough = work.quotas.allow(job, missing, serving)
    for giver, _ in owed:
        work.quotas.take(giver.job)
    return owed if enough else []


def _explain(work: Work, share: Share, missing: int, *, served: bool) -> None:
    job, needs = share.job, share.requests(first=True)
    serving = 0 if served else share.unserved
    if not work.quotas.allow(job, missing if serving else 1, serving):
        lack = work.quotas.lack(job, missing, serving)
        share.set(Reason.QUOTA_REACHED, {**lack, "missing": missing})
        return
    if job.servers is not None and serving:
        wanted: dict[str, Figure] = {"servers": serving, "needs": job.servers.requests}
        share.set(Reason.WAITING_FOR_ROOM, wanted)
        return
    names = work.room.open_nodes(job.constraints, pooled=True)
    largest = work.largest(job.constraints)
    if amounts.within(needs, largest) and any(
        amounts.within(needs, work.index.nodes[name].allocatable) for name in names
    ):
        share.set(Reason.WAITING_FOR_ROOM, {"missing": missing, "needs": needs})
        return
    figures: dict[str, Figure] = {"needs": needs, "nodes": len(names)}
    if names:
        needed = sorted(needs.keys() - {"pods"})
        figures["largest"] = {name: largest.get(name, 0) for name in needed}
    share.set(Reason.FITS_NO_NODE, figures)
