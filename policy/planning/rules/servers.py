"""Rule 3, parameter servers: a running job's lost servers are replaced before other training pods are placed.

A job that lacks one of its servers makes no progress. So a missing server is created again under the same
index, even at the cost of one of the job's trainers. The first servers are created together with the first
trainers, all or none (`policy.planning.rules.admission`), and are deleted after the last trainer has ended
(docs/decisions/0013).
"""

from policy.cluster.snapshot import RESTART_S, Constraints, Pod, ServerSpec
from policy.decisions import Figure
from policy.planning.book import Book
from policy.planning.decisions import (
    AddServers,
    Blocked,
    Decisions,
    DeleteServer,
    ReleaseTrainer,
    Reserve,
)
from policy.planning.job_entry import JobEntry
from policy.planning.rules import placements, receivers
from policy.planning.rules.placements import Placement, count_gains
from policy.planning.rules.trial import Trial
from policy.reasons import Reason

_WITHOUT_CLAIM_S = 300.0
"""How long Kubernetes itself waits before it evicts the pods of a node that is not ready."""


def maintain(book: Book) -> Decisions[None]:
    """Deletes servers that have ended, are lost or are no longer needed; replaces missing servers."""
    for entry in book.entries:
        pods = book.cluster.servers_of(entry.job)
        backoff = book.creation_backoffs.get(entry.job.uid)
        if entry.stopped or (backoff is not None and backoff.partial):
            yield from _release_all(book, entry, pods)
        elif entry.grows and entry.server_count and entry.job.servers is not None:
            yield from _release_lost(book, entry, pods)
            yield from _replace_missing(book, entry, entry.job.servers, pods)


def place_initial(
    book: Book, trial: Trial, entry: JobEntry, trainers: int, closed: frozenset[str]
) -> list[Placement] | Blocked | None:
    """Places the servers with which a job starts.

    Args:
        book: The plan so far.
        trial: The trial that makes the reservations.
        entry: The job.
        trainers: Number of trainers that start with the servers.
        closed: Nodes that the job must not use.

    Returns:
        The placements, or the reason why other jobs do not give capacity for the servers, or None if
        not all servers fit or the quotas do not allow the servers and the trainers.
    """
    spec, count = entry.job.servers, entry.servers_to_start
    if spec is None or not count:
        return []
    if not book.quotas.allow(entry.job, trainers, count):
        return None
    constraints = _constraints(book, entry)
    if book.capacity.slots(spec.requests, constraints, closed, pooled=False) < count:
        return None
    tries = (trial.place(spec.requests, constraints, closed, pooled=False) for _ in range(count))
    placed = [placement for placement in tries if placement is not None]
    if blocked := receivers.refusal(entry, count_gains(placed), minimum=True):
        return blocked
    trial.count(entry.job, 0, count)
    return placed


def _constraints(book: Book, entry: JobEntry) -> Constraints:
    """Returns the constraints of servers, which may also run on nodes that trainers avoid."""
    return book.cluster.jobs[entry.key].server_constraints


def _release_all(book: Book, entry: JobEntry, pods: list[Pod]) -> Decisions[None]:
    """Deletes all servers once the last trainer has ended, as trainers may fetch parameters."""
    trainers = book.cluster.members.get(entry.key, {}).values()
    if any(not pod.terminal and pod.owner_uid == entry.job.uid for pod in trainers):
        return
    for pod in pods:
        if not pod.deleting:
            yield DeleteServer(entry.key, pod, Reason.JOB_STOPPED)


def _release_lost(book: Book, entry: JobEntry, pods: list[Pod]) -> Decisions[None]:
    """Deletes pods that will not serve again, because their replacements need the names."""
    for pod in pods:
        node_lost = _is_node_lost(book, entry, pod)
        if node_lost or (pod.terminal and not pod.deleting):
            yield DeleteServer(entry.key, pod, Reason.SERVER_MOVES, is_node_lost=node_lost)


def _is_node_lost(book: Book, entry: JobEntry, pod: Pod) -> bool:
    """Returns whether a pod's node is lost or deleted.

    Without a claim, the parameters are lost with the pod: as long as the kubelet reports anything, the
    server stays until Kubernetes itself would evict it.
    """
    node, spec = book.cluster.nodes.get(pod.node), entry.job.servers
    has_claim = spec is not None and bool(spec.claim)
    if node is None:
        return pod.node in book.gone_nodes
    return node.is_lost(book.now_s, RESTART_S if has_claim else _WITHOUT_CLAIM_S)


def _replace_missing(
    book: Book, entry: JobEntry, spec: ServerSpec, pods: list[Pod]
) -> Decisions[None]:
    """Reserves capacity for every missing server; creates the servers whose pod name is free.

    A server whose old pod is still being deleted only keeps its reservation.
    """
    existing = {pod.server for pod in pods}
    running = {
        pod.server
        for pod in pods
        if not (pod.terminal or pod.deleting or _is_node_lost(book, entry, pod))
    }
    for number in range(spec.count):
        if number in running:
            continue
        constraints = _constraints(book, entry)
        node = yield from placements.place(book, entry, spec.requests, constraints, pooled=False)
        if not node:
            node = yield from _free_capacity(book, entry, spec, number)
        if node and number not in existing:
            yield AddServers(entry.key, {number: node}, is_start=False)


def _free_capacity(book: Book, entry: JobEntry, spec: ServerSpec, number: int) -> Decisions[str]:
    """Releases trainers of the job for a server; returns its node, or "" if that does not help."""
    node, victims = placements.fewest_victims(
        book,
        entry,
        spec.requests,
        _constraints(book, entry),
        pooled=False,
        allow_master_host=False,
    )
    for pod in victims:
        figures: dict[str, Figure] = {"new_node": node, "server": number}
        yield ReleaseTrainer(entry.key, pod, Reason.SERVER_MOVES, figures)
    if victims:
        yield Reserve(node, spec.requests)
    return node
