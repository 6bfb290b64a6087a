"""Jobs whose new trainers are refused or never placed: each waits on its own, others go on."""

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
    """Returns whether a waiting trainer waits for more than kube-scheduler's next free moment."""
    return pod.refused or pod.gated or entry.job.uid in book.creation_backoffs


def refusal(book: Book, entry: JobEntry) -> Blocked | None:
    """Returns why the API server takes no further trainers of a job for now, as far as is known."""
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
    """Returns why a job gets no further surplus trainer for now; None where it may get one.

    After the pause it gets one, or the number of its next allowed size. While trainers have
    scheduling gates, from the template or an admission webhook, more would have them too.
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

    A job whose last trainers came to nothing gets them rarely, and one size at a time. A job gets none
    while a minimum of its namespace takes the rest of a ResourceQuota.
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
    """Returns whether a job has had a larger allowed size than it has now."""
    return entry.count < sizes.floor_size(book.policy, entry.job, backoff.trainers)


def after_unplaced(book: Book, entry: JobEntry, pod: Pod) -> CreationBackoff | None:
    """Returns the back-off of a job whose trainer is withdrawn although a node has capacity for it.

    None where kube-scheduler has not tried it, which says nothing about the job; nor while it places
    other trainers of the job, as it is only slow then. Trainers of one attempt count once.
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
    """Releases the first trainers of a job where the API server refused some of them."""
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
