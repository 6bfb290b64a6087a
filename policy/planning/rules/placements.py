"""Capacity for pods that outrank surplus: the nodes where they fit, and the pods that leave for them."""

from collections.abc import Iterable
from typing import NamedTuple

from policy.cluster import amounts
from policy.cluster.live_trainers import is_surplus
from policy.cluster.snapshot import Constraints, Pod, Resources
from policy.decisions import Figure
from policy.planning.book import Book
from policy.planning.decisions import Decisions, Preempt, ReleaseTrainer, Reserve
from policy.planning.free_capacity import NOWHERE, When
from policy.planning.job_entry import JobEntry
from policy.reasons import Reason


class Placement(NamedTuple):
    """A node for one pod."""

    node: str
    requests: Resources
    preempted: Resources
    """Amounts that kube-scheduler must preempt on the node."""
    is_free: bool
    """Whether the capacity is free now. If not, kube-scheduler may preempt others than the leaving pods."""


def find(
    book: Book,
    requests: Resources,
    constraints: Constraints,
    closed: frozenset[str] = NOWHERE,
    *,
    pooled: bool,
) -> Placement | None:
    """Returns a node for one pod; None if the pod fits on no node, even without surplus."""
    capacity = book.capacity
    node, must_preempt = capacity.choose_node(requests, constraints, closed, pooled=pooled)
    if not node:
        return None
    preempted: Resources = {}
    if must_preempt:
        free = capacity.free_later(node)
        preempted = {
            name: amount - min(amount, max(0, free.get(name, 0)))
            for name, amount in requests.items()
        }
    is_free = amounts.within(requests, capacity.free_now(node))
    return Placement(node, requests, preempted, is_free)


def count_gains(placements: Iterable[Placement]) -> int:
    """Returns how many of the placements may end trainers of other jobs."""
    return sum(not placement.is_free for placement in placements)


def place(
    book: Book, entry: JobEntry, requests: Resources, constraints: Constraints, *, pooled: bool
) -> Decisions[str]:
    """Reserves capacity for one pod of a job, if it fits on a node.

    Returns:
        The node; "" for none.
    """
    placement = find(book, requests, constraints, pooled=pooled)
    if placement is None:
        return ""
    yield Reserve(placement.node, requests)
    yield from count_preempted(book, entry, [placement])
    return placement.node


def count_preempted(
    book: Book, entry: JobEntry, placements: Iterable[Placement]
) -> Decisions[None]:
    """Counts the amounts that kube-scheduler preempts for a job's reserved placements as leaving."""
    for placement in placements:
        preempted = dict(placement.preempted)
        if preempted:
            released = yield from release_excess(book, entry, placement.node)
            amounts.subtract(preempted, released)
            leaving = {name: amount for name, amount in preempted.items() if amount > 0}
            yield Preempt(placement.node, leaving)


def release_excess(book: Book, entry: JobEntry, node: str) -> Decisions[Resources]:
    """Releases trainers that a reservation on a node needs and that kube-scheduler would not preempt.

    kube-scheduler preempts surplus for a trainer, but no pod of the same priority. The plan therefore
    releases other jobs' guaranteed trainers above their minimum, as few as needed.

    Args:
        book: The plan so far.
        entry: The job for which capacity was reserved.
        node: The node.

    Returns:
        The released amounts.
    """
    released: dict[str, int] = {}
    excess = _excess_on(book, node)
    free = dict(book.capacity.free_at(node, When.RECLAIMED))
    for _, pod in excess:
        amounts.subtract(free, pod.requests)
    for donor, pod in excess:
        if all(amount >= 0 for amount in free.values()):
            break
        figures: dict[str, Figure] = {"job": entry.key, "min": donor.job.min_trainers}
        yield ReleaseTrainer(donor.key, pod, Reason.ABOVE_MIN, figures)
        amounts.add(free, pod.requests)
        amounts.add(released, pod.requests)
    return released


def _excess_on(book: Book, node: str) -> list[tuple[JobEntry, Pod]]:
    pairs = [
        (entry, pod)
        for entry in book.entries
        if entry.facts.excess
        for pod in entry.surplus
        if pod.uid in entry.facts.excess and pod.node == node
    ]
    return sorted(pairs, key=lambda pair: -book.measure(pair[0], pair[0].count))


def fewest_victims(
    book: Book,
    entry: JobEntry,
    requests: Resources,
    constraints: Constraints,
    *,
    pooled: bool,
    allow_master_host: bool,
) -> tuple[str, list[Pod]]:
    """Returns the node where the pod fits after the fewest releases of the job's trainers, and these trainers.

    Surplus already counts as free, so only guaranteed trainers are examined. A node is skipped if a
    waiting service would take the capacity first.

    Args:
        book: The plan so far.
        entry: The job.
        requests: Requests of the pod that needs capacity.
        constraints: The nodes where that pod may run.
        pooled: Whether node pools apply to that pod.
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
    """Returns whether a waiting service fits into `free`; its constraints are ignored for simplicity."""
    return any(
        not pod.is_training and amounts.within(pod.requests, free)
        for pod in book.unschedulable_pods
    )
