"""Jobs whose new trainers are refused or never placed: they are held back, each for itself."""

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
    """Whether a waiting trainer waits for something else than kube-scheduler's next free moment."""
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

    After the pause it gets one, or as many as its next allowed size takes. While trainers have
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
    """Whether other jobs give trainers to a job: for sizes that came to nothing rarely, one at a time.

    None where a minimum of its namespace has what a ResourceQuota leaves.
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
    """Whether a job has had a larger size than now; of trainers between two sizes none stays."""
    return entry.count < sizes.floor_size(book.policy, entry.job, backoff.trainers)


def after_unplaced(book: Book, entry: JobEntry, pod: Pod) -> CreationBackoff | None:
    """Returns the back-off of a job whose trainer is withdrawn although a node has capacity for it.

    Only where kube-scheduler has tried it: one that is away says nothing about the job. Not while
    it places others of the job's trainers: then it is only slow. Trainers of one try count once.
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
