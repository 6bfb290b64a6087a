"""Rule 5, admission: surplus is released for a minimum that the namespace's ResourceQuota refuses.

Kubernetes does not say whose pods fill a quota, but EDL knows its own pods in the namespace. If releasing
surplus makes the whole minimum fit, the rule releases enough of it, from the jobs with the largest shares
first. The namespace then gets no new surplus until the minimum has had time to start. If other pods fill
the quota again, further releases follow at ever longer intervals.
"""

from collections.abc import Mapping

from policy.admission import quota_refusal
from policy.backoff import pause_s
from policy.cluster import amounts
from policy.cluster.quota_amounts import of_pod, with_limits
from policy.cluster.snapshot import Pod
from policy.planning.book import Book
from policy.planning.decisions import Blocked, Decisions, HoldQuota, ReleaseTrainer
from policy.planning.job_entry import JobEntry
from policy.reasons import Reason

_HOLD_S = 60.0
"""How long a namespace gets no surplus after a release, while trainers end and the job tries again."""
_AGAIN_S = (120.0, 3600.0)
"""First and longest pause between releases for the same job."""


def relieve(book: Book, entry: JobEntry, missing: int) -> Decisions[None]:
    """Releases surplus in a refused job's namespace, if that lets the job's minimum start.

    Args:
        book: The plan so far.
        entry: A job that the API server refuses now.
        missing: Number of trainers that the job lacks.
    """
    number, last_s = book.history.quota_reliefs.get(entry.job.uid, (0, 0.0))
    if number and book.now_s < last_s + pause_s(*_AGAIN_S, number):
        return
    backoff = book.creation_backoffs.get(entry.job.uid)
    missing -= entry.facts.count - entry.count  # trainers of a partial start, released by now
    refusal = entry.job.refusal or (backoff.error if backoff is not None else "")
    lacking = _lacking(entry, missing, quota_refusal.unused(refusal))
    victims = _victims(book, entry, lacking) if lacking else []
    for owner, pod in victims:
        yield ReleaseTrainer(owner.key, pod, Reason.QUOTA_REACHED, {"job": entry.key})
    if victims:
        yield HoldQuota(entry.key, is_relief=True)


def is_held(book: Book, entry: JobEntry) -> bool:
    """Returns whether the quota that was released for a job is still closed to surplus."""
    number, last_s = book.history.quota_reliefs.get(entry.job.uid, (0, 0.0))
    backoff = book.creation_backoffs.get(entry.job.uid)
    next_try_s = backoff.until_s if backoff is not None else last_s
    return number > 0 and book.now_s < max(last_s, next_try_s) + _HOLD_S


def surplus_hold(book: Book, entry: JobEntry) -> Blocked | None:
    """Returns why a job gets no surplus if a minimum in its namespace waits for quota; None otherwise."""
    waiting = book.awaiting_quota.get(entry.job.namespace)
    return None if waiting is None else Blocked(Reason.QUOTA_REACHED, {"job": waiting})


def _lacking(entry: JobEntry, missing: int, unused: Mapping[str, int]) -> dict[str, int]:
    """Returns resource -> amount that the quota lacks for the missing trainers and servers."""
    job, servers = entry.job, entry.job.servers
    needed = amounts.scaled(with_limits(job.requests, job.limits), missing)
    if servers is not None:
        of_server = with_limits(servers.requests, {})
        needed = amounts.plus(needed, amounts.scaled(of_server, entry.servers_to_start))
    return {n: needed[n] - unused[n] for n in unused if needed.get(n, 0) > unused[n]}


def _victims(book: Book, entry: JobEntry, lacking: dict[str, int]) -> list[tuple[JobEntry, Pod]]:
    """Returns surplus whose release frees all `lacking` amounts, largest shares first; empty if none does."""
    donors = {
        donor.key: (donor, donor.spare)
        for donor in book.entries
        if donor.job.namespace == entry.job.namespace and donor.job.managed and donor is not entry
    }
    victims: list[tuple[JobEntry, Pod]] = []
    taken = dict.fromkeys(donors, 0)
    while any(amount > 0 for amount in lacking.values()):
        left = [(book.measure(d, d.count - taken[k]), k) for k, (d, s) in donors.items() if s]
        if not left:
            return []
        _, key = max(left)
        donor, spare = donors[key]
        pod = spare.pop(0)
        has = of_pod(donor.job, pod)
        if any(has.get(name, 0) > 0 for name, amount in lacking.items() if amount > 0):
            amounts.subtract(lacking, {name: has.get(name, 0) for name in lacking})
            victims.append((donor, pod))
            taken[key] += 1
    return victims
