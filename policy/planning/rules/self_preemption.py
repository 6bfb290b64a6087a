"""Self-preemption: which trainers of a job to release for a pod that the whole job needs."""

from policy.cluster import amounts
from policy.cluster.live_trainers import is_surplus
from policy.cluster.snapshot import Constraints, Pod, Resources
from policy.planning.book import Book
from policy.planning.free_capacity import When
from policy.planning.job_entry import JobEntry


def fewest_victims(
    book: Book,
    entry: JobEntry,
    requests: Resources,
    constraints: Constraints,
    *,
    pooled: bool,
    allow_master_host: bool,
) -> tuple[str, list[Pod]]:
    """The node where releasing the fewest of the job's trainers fits the pod, and those trainers.

    Surplus counts as free already, so only guaranteed trainers are examined. A node does not count
    where a waiting service would take the capacity first.

    Args:
        book: The plan so far.
        entry: The job.
        requests: Requests of the pod that needs capacity.
        constraints: Where that pod may run.
        pooled: Whether node pools apply to it.
        allow_master_host: Whether the trainer that hosts the master may be released, too.
    """
    open_nodes = book.capacity.open_nodes(constraints, pooled=pooled)
    victims_by_node: dict[str, list[Pod]] = {}
    options: list[tuple[str, list[Pod]]] = []
    for pod in entry.live:
        exempt = is_surplus(pod) or (pod.master and not allow_master_host)
        if pod.node in open_nodes and not exempt:
            victims = victims_by_node.setdefault(pod.node, [])
            victims.append(pod)
            free = dict(book.capacity.free_at(pod.node, When.RECLAIMED))
            for victim in victims:
                amounts.add(free, victim.requests)
            if amounts.within(requests, free) and not _needed_by_service(book, free):
                options.append((pod.node, list(victims)))
    return min(options, key=lambda option: len(option[1]), default=("", []))


def _needed_by_service(book: Book, free: Resources) -> bool:
    """Whether a waiting service fits there; its constraints are ignored for simplicity."""
    return any(
        not pod.is_training and amounts.within(pod.requests, free)
        for pod in book.unschedulable_pods
    )
