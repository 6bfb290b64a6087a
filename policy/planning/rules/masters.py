"""Rule 6, masters: a job that lost its master gets a new one, even at the cost of a trainer.

A master is a sidecar and cannot be added to a running pod, so it is created with a new guaranteed
trainer. Usually the master's former host is missing, and rule 5 replaces that trainer. If rule 5 creates
no trainer, because no node has capacity or no trainer is missing, this rule releases a live trainer:
without their master, the others would soon have nothing to do (docs/decisions/0009).
"""

from policy.cluster.snapshot import Constraints, Pod, Resources
from policy.names import Tier
from policy.planning.book import Book
from policy.planning.decisions import (
    CreateTrainers,
    Decisions,
    Explain,
    ReleaseTrainer,
    Reserve,
    WaiveAvoidance,
)
from policy.planning.job_entry import JobEntry
from policy.planning.rules import placements
from policy.planning.rules.admission import hold
from policy.reasons import Reason


def restore_masters(book: Book) -> Decisions[None]:
    """Creates a host for the master of each running job without a master, or frees capacity for the host."""
    for entry in book.entries:
        if not (entry.job.master and entry.grows and entry.live):
            continue
        host = book.cluster.master_host(entry.job)
        if host is not None:
            yield from _maintain(book, entry, host)
        elif entry.masterless and not entry.creates[Tier.GUARANTEED]:
            if blocked := hold(book, entry):
                yield Explain(entry.key, blocked)
            else:
                yield from _replace(book, entry)


def _maintain(book: Book, entry: JobEntry, host: Pod) -> Decisions[None]:
    """Frees capacity for a waiting host; releases a host whose node is lost or deleted.

    Kubernetes itself would evict the pods of such a node only after minutes.
    """
    node = book.cluster.nodes.get(host.node)
    is_lost = host.node in book.gone_nodes or (node is not None and node.is_lost(book.now_s))
    if host in book.unschedulable_pods:
        yield from _free_capacity(book, entry, host)
    elif is_lost and host in entry.live:
        yield ReleaseTrainer(entry.key, host, Reason.MASTER_MOVES, {"lost_node": host.node})


def _free_capacity(book: Book, entry: JobEntry, host: Pod) -> Decisions[None]:
    """Releases trainers for a waiting host whose capacity another pod has taken."""
    node, victims = placements.fewest_victims(
        book, entry, host.requests, host.constraints, pooled=True, allow_master_host=True
    )
    yield from _release(entry, victims, node)
    if victims:
        yield Reserve(node, host.requests, in_load=False)


def _replace(book: Book, entry: JobEntry) -> Decisions[None]:
    """Creates one guaranteed trainer, and releases at least one live trainer for it.

    A node that the job avoids is used only if no other node helps.
    """
    job, requests = entry.job, entry.requests(first=True)
    node, victims = _host_node(book, entry, requests, job.constraints)
    submitted = book.cluster.jobs[entry.key].constraints
    if not victims and submitted != job.constraints:
        node, victims = _host_node(book, entry, requests, submitted)
        yield WaiveAvoidance(entry.key)
    yield from _release(entry, victims, node)
    if victims:
        yield Reserve(node, requests)
        yield from placements.release_excess(book, entry, node)
        yield CreateTrainers(entry.key, Tier.GUARANTEED, (node,))


def _host_node(
    book: Book, entry: JobEntry, requests: Resources, constraints: Constraints
) -> tuple[str, list[Pod]]:
    """Returns a node for a trainer that hosts the master, and the trainers to release for it."""
    node, _ = book.capacity.choose_node(requests, constraints, pooled=True)
    if node:
        return node, entry.live[:1]
    return placements.fewest_victims(
        book, entry, requests, constraints, pooled=True, allow_master_host=True
    )


def _release(entry: JobEntry, victims: list[Pod], node: str) -> Decisions[None]:
    for pod in victims:
        yield ReleaseTrainer(entry.key, pod, Reason.MASTER_MOVES, {"new_node": node})
