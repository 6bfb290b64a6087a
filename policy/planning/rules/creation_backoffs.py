"""Jobs whose new trainers are refused or never placed: each such job pauses, and other jobs continue."""

from policy.cluster.snapshot import Pod
from policy.decisions import Figure, time
from policy.names import Tier
from policy.planning import sizes
from policy.planning.book import Book
from policy.planning.creation_backoff import CreationBackoff, unplaced
from policy.planning.decisions import Blocked, Decisions, ReleaseTrainer
from policy.planning.job_entry import JobEntry
from policy.reasons import Reason


def is_stuck(book: Book, entry: JobEntry, pod: Pod) -> bool:
    """Returns whether something besides kube-scheduler's pace keeps a waiting trainer from a node."""
    return pod.refused or pod.gated or entry.job.uid in book.creation_backoffs


def refusal(book: Book, entry: JobEntry) -> Blocked | None:
    """Returns why the API server would refuse further trainers of a job now; None if it may accept them."""
    backoff = book.creation_backoffs.get(entry.job.uid)
    if entry.job.unprobed:
        return Blocked(Reason.CHECKING)
    if entry.job.refusal:
        return Blocked(Reason.REFUSED, {"error": entry.job.refusal})
    if backoff is None or not backoff.error or _had_more(book, entry, backoff):
        return None
    if backoff.until_s <= book.now_s:
        return None
    return Blocked(Reason.REFUSED, {"error": backoff.error})


def surplus_hold(book: Book, entry: JobEntry) -> Blocked | None:
    """Returns why a job gets no further surplus trainer for now; None if it may get one.

    After a pause the job gets one trainer, or as many as its next allowed size takes. A job with gated
    trainers gets none: the scheduling gates come from the template or an admission webhook, so new
    trainers would have them too.
    """
    if blocked := refusal(book, entry):
        return blocked
    gated = sum(pod.gated for pod in entry.waiting)
    if gated:
        return Blocked(Reason.GATED, {"gated": gated})
    backoff = book.creation_backoffs.get(entry.job.uid)
    if backoff is None or _had_more(book, entry, backoff):
        return None
    trying = bool(entry.creates[Tier.SURPLUS] or entry.waiting)
    if backoff.until_s <= book.now_s and not trying:
        return None
    if backoff.error:
        return Blocked(Reason.REFUSED, {"error": backoff.error})
    until = time(backoff.until_s)
    return Blocked(Reason.UNPLACED, {"trainers": backoff.trainers, "until": until})


def may_receive(book: Book, entry: JobEntry) -> bool:
    """Returns whether other jobs may give trainers to a job.

    A job whose last trainers were refused or not placed gets them rarely, and one size at a time. A job
    gets none while a minimum in its namespace needs the rest of a ResourceQuota.
    """
    if entry.job.namespace in book.awaiting_quota:
        return False
    backoff = book.creation_backoffs.get(entry.job.uid)
    if backoff is None:
        return True
    if entry.expected_count:
        return False
    return _had_more(book, entry, backoff) or backoff.allows_move(book.now_s)


def _had_more(book: Book, entry: JobEntry, backoff: CreationBackoff) -> bool:
    """Returns whether a job has fewer trainers than the allowed size that it had at the back-off."""
    return entry.count < sizes.floor_size(book.policy, entry.job, backoff.trainers)


def after_unplaced(book: Book, entry: JobEntry, pod: Pod) -> CreationBackoff | None:
    """Returns the back-off of a job whose trainer is withdrawn although a node has capacity for it.

    The result is None, meaning no new back-off, if kube-scheduler has not tried the trainer, or if it
    still places other trainers of the job and is only slow. Trainers of the same attempt count once.
    """
    if not pod.refused:
        return None
    since_s = book.now_s - book.policy.stability.withdraw_after_seconds
    first_seen = book.cluster.first_seen
    if any(t.node and first_seen.started_s(t, book.now_s) > since_s for t in entry.live):
        return None
    before = book.creation_backoffs.get(entry.job.uid)
    if before is not None and first_seen.created_s(pod, book.now_s) <= before.last_s:
        return None
    placed = entry.count - len(entry.waiting)
    return unplaced(before, trainers=placed, now_s=book.now_s)


def take_back_partial_starts(book: Book) -> Decisions[None]:
    """Releases a job's first trainers if the API server refused some of them."""
    for entry in book.entries:
        backoff = book.creation_backoffs.get(entry.job.uid)
        if backoff is None or not backoff.partial or entry.guaranteed >= entry.job.min_trainers:
            continue
        figures: dict[str, Figure] = {
            "live": len(entry.live),
            "min": entry.job.min_trainers,
            "error": backoff.error,
        }
        for pod in tuple(entry.live):
            yield ReleaseTrainer(entry.key, pod, Reason.START_REFUSED, figures)
