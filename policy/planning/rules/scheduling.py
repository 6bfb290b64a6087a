"""Rule 2, scheduling: pods that wait for a scheduler that training does not use any more go.

Without the extender's entries no scheduler finds a node for a pod with the marker resource. Surplus
would be withdrawn after a while anyway; guaranteed trainers and parameter servers wait for ever.
Rules 3 and 5 create them again, for the scheduler in force.
"""

from policy.cluster.snapshot import Pod
from policy.names import TRAINER_RESOURCE
from policy.planning.book import Book
from policy.planning.decisions import Decisions, DeleteServer, ReleaseTrainer
from policy.planning.job_entry import JobEntry
from policy.reasons import Reason


def replace_outdated(book: Book) -> Decisions[None]:
    """Releases waiting trainers and parameter servers that were created for another scheduler."""
    for entry in book.entries:
        if not (entry.job.managed and entry.facts.grows):
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
    """Whether a pod has no node, was created for another scheduler, and has waited a while.

    The delay keeps pods from being replaced again and again where the webhook learns of a change
    after the reconciler.
    """
    return (
        not (pod.node or pod.nominated)
        and book.waited_s(pod) >= book.policy.stability.withdraw_after_seconds
        and book.history.scheduling.is_outdated(pod, entry.job)
    )
