"""Rules 2, 8 and 10 (limits, allowed sizes and reserve): release trainers above a limit.

Rule 2 also releases pods that wait for a scheduler which training no longer uses.
"""

from heapq import heapify, heappop, heappush

from policy.cluster.snapshot import Pod
from policy.names import TRAINER_RESOURCE, Tier
from policy.planning import sizes, vacancy
from policy.planning.book import Book
from policy.planning.decisions import BackOff, CancelAbsent, Decisions, DeleteServer, ReleaseTrainer
from policy.planning.job_entry import JobEntry
from policy.reasons import Reason


def release(book: Book) -> Decisions[None]:
    """Releases trainers above a limit, then pods that no scheduler takes any more."""
    yield from _release_excess(book)
    yield from _replace_outdated(book)


def _release_excess(book: Book) -> Decisions[None]:
    """Releases trainers of stopped jobs, and trainers above max or a quota.

    A quota takes no job below its minimum. A job whose annotations became invalid keeps its trainers
    until the annotations are corrected.
    """
    for entry in book.entries:
        if entry.job.error and not entry.stopped:
            continue
        allowed = _allowed_count(entry)
        reason = Reason.JOB_STOPPED if entry.stopped else Reason.ABOVE_MAX
        if cancelled := min(entry.absent, max(0, entry.count - allowed)):
            yield CancelAbsent(entry.key, cancelled)
        for pod in entry.live[: max(0, len(entry.live) - allowed)]:
            yield ReleaseTrainer(
                entry.key, pod, reason, {"live": entry.facts.count, "wanted": allowed}
            )
        for pod in entry.live[:] if entry.facts.excess and not entry.stopped else ():
            if pod.uid in entry.facts.excess and not pod.node:
                yield ReleaseTrainer(
                    entry.key, pod, Reason.ABOVE_MIN, {"min": entry.job.min_trainers}
                )
        while entry.absent and entry.count > entry.covered_min and book.quotas.exceeded(entry.job):
            yield CancelAbsent(entry.key, 1)
        while (victim := book.quotas.reliever(entry.job, entry.spare)) is not None:
            lack = book.quotas.lack(entry.job, 0)
            yield ReleaseTrainer(entry.key, victim, Reason.QUOTA_REACHED, lack)


def _allowed_count(entry: JobEntry) -> int:
    """Returns the number of live trainers that a job may keep, minus its missing guaranteed trainers."""
    if entry.stopped:
        return 0
    if not entry.job.managed:
        return entry.job.max_trainers
    present = entry.guaranteed - entry.facts.stranded
    missing = max(0, entry.covered_min - present) if entry.grows else 0
    return entry.job.max_trainers + entry.facts.stranded - missing


def _replace_outdated(book: Book) -> Decisions[None]:
    """Releases waiting trainers and parameter servers that were created for another scheduler.

    A scheduler without the extender's entries finds no node for a pod with the marker resource. Surplus
    would be withdrawn after a while anyway, but guaranteed trainers and parameter servers would wait
    forever. Rules 3 and 5 create them again for the scheduler in use.
    """
    for entry in book.entries:
        if not (entry.job.managed and entry.grows):
            continue
        waiting = (pod for pod in entry.live if not pod.node)
        for pod in [pod for pod in waiting if _is_outdated(book, entry, pod)]:
            figures = {"why": _why(book, entry, pod)}
            yield ReleaseTrainer(
                entry.key, pod, Reason.SCHEDULER_CHANGED, figures, takes_master=pod.master
            )
        for pod in book.cluster.servers_of(entry.job):
            if not (pod.deleting or pod.terminal) and _is_outdated(book, entry, pod):
                yield DeleteServer(entry.key, pod, Reason.SCHEDULER_CHANGED)


def _why(book: Book, entry: JobEntry, pod: Pod) -> str:
    scheduler = book.history.scheduling.scheduler_of(entry.job.scheduler)
    if pod.scheduler != scheduler:
        return f"it waits for {pod.scheduler}, but trainers now use {scheduler}"
    return f"it requests {TRAINER_RESOURCE}, but {scheduler} is not known to have the extender"


def _is_outdated(book: Book, entry: JobEntry, pod: Pod) -> bool:
    """Returns whether a pod has no node, was created for another scheduler, and has waited a while.

    The delay prevents endless replacements if the webhook learns of a change later than the reconciler.
    """
    return (
        not (pod.node or pod.nominated)
        and book.waited_s(pod) >= book.policy.stability.withdraw_after_seconds
        and book.history.scheduling.is_outdated(pod, entry.job)
    )


def release_to_allowed_size(book: Book) -> Decisions[None]:
    """Releases surplus of jobs whose number of trainers lies between two allowed sizes."""
    for entry in book.entries:
        size = sizes.floor_size(book.policy, entry.job, entry.count)
        excess = entry.count - size
        if entry.grows and entry.job.managed and excess > 0 and not entry.paused:
            backoff = book.creation_backoffs.get(entry.job.uid)
            if backoff is not None:  # the excess trainers were wasted
                yield BackOff(entry.key, backoff.after_vain(excess))
            for pod in entry.surplus[:excess]:
                figures = {"live": entry.facts.count, "size": size}
                yield ReleaseTrainer(entry.key, pod, Reason.SIZE_NOT_ALLOWED, figures)


def keep_reserve(book: Book) -> Decisions[None]:
    """Releases surplus from nodes that an autoscaler may remove, and surplus that uses the reserve."""
    yield from _vacate_nodes(book)
    yield from _restore_reserve(book)


def _vacate_nodes(book: Book) -> Decisions[None]:
    """Releases surplus from nodes that no other pod has needed for a while.

    An autoscaler without a priority cut-off, such as Karpenter, would keep such a node for surplus.
    """
    after_s = book.policy.autoscaling.vacate_after_seconds
    needed_soon = {node for entry in book.entries for node in entry.creates[Tier.GUARANTEED]}
    unneeded = vacancy.unneeded_nodes(book.cluster, book.policy) - needed_soon
    for entry in book.entries if unneeded else ():
        for pod in entry.spare:
            since_s = book.history.unneeded_since.get(pod.node, book.now_s)
            if pod.node in unneeded and book.now_s - since_s >= after_s:
                figures = {"unneeded_s": int(book.now_s - since_s)}
                yield ReleaseTrainer(entry.key, pod, Reason.NODE_NOT_NEEDED, figures)


def _restore_reserve(book: Book) -> Decisions[None]:
    """Releases surplus, a few trainers at a time, while more is in use than the reserve allows.

    The rule waits during a burst: services then get capacity through preemption, and the remaining
    capacity is known only once they run.
    """
    if book.burst:
        return
    moves = book.moves if book.load.exceeded() else 0
    richest = [(*_richness(book, entry), position) for position, entry in enumerate(book.entries)]
    heapify(richest)
    while moves > 0 and richest and (exceeded := book.load.exceeded()):
        *_, position = heappop(richest)
        entry = book.entries[position]
        if not (entry.spare and any(entry.job.requests.get(name, 0) > 0 for name in exceeded)):
            continue
        yield ReleaseTrainer(entry.key, entry.spare[0], Reason.RESERVE_RESTORED, book.load.excess())
        heappush(richest, (*_richness(book, entry), position))
        moves -= 1


def _richness(book: Book, entry: JobEntry) -> tuple[bool, int, float]:
    """Returns the sort key of donors: borrowing queues first, then the lowest priority, the largest share."""
    queue = entry.job.queue
    borrowed = book.quotas.borrowing.borrowed(queue, entry.job.requests)
    return not borrowed, entry.facts.priority, -book.expected_measure(entry)
