"""Rule 5, node requests: a minimum that fits nowhere makes an autoscaled cluster grow.

Cluster autoscalers add nodes only for pending pods. If the policy allows it, guaranteed trainers for which
no capacity was found for a while are created without a node, together with a starting job's parameter
servers. They wait for nodes, and are deleted if none is added (docs/decisions/0017). Surplus is created
only on free capacity, so it never makes a cluster grow.
"""

from collections import Counter

from policy.backoff import pause_s
from policy.cluster.snapshot import Pod
from policy.decisions import Figure, time
from policy.document.model import NodeRequests
from policy.names import NodeRequest, Tier
from policy.planning.book import Book
from policy.planning.decisions import (
    AwaitNodes,
    Blocked,
    Decisions,
    DeleteServer,
    Explain,
    ReleaseTrainer,
    Remember,
    RequestNodes,
)
from policy.planning.job_entry import JobEntry
from policy.planning.plan import Create
from policy.planning.rules import placements
from policy.reasons import Reason

_FIRST_PAUSE_S, _MAX_PAUSE_S = 300.0, 3600.0
"""First and longest pause of a job whose requested nodes were not added."""
_NEVER = (0, 0.0)
"""Default of `History.vain_requests`: no request has failed."""


def settle(book: Book) -> Decisions[None]:
    """Keeps the pods that wait for nodes, or releases them after a while.

    A job that has never had its minimum loses all its pods: a part of the minimum would hold capacity
    that other jobs can use.
    """
    for entry in book.entries:
        pending = _pending(book, entry)
        if not pending or entry.stopped:
            continue
        settings = book.policy.autoscaling
        first_seen = book.cluster.first_seen
        since_s = min(first_seen.created_s(pod, book.now_s) for pod in pending)
        until_s = since_s + settings.timeout_seconds
        figures: dict[str, Figure] = {"pending": len(pending), "until": time(until_s)}
        if settings.mode_of(entry.job.queue) is not NodeRequests.NONE and book.now_s < until_s:
            yield AwaitNodes(entry.key)
            yield Explain(entry.key, Blocked(Reason.NODES_REQUESTED, figures))
            continue
        if book.now_s >= until_s:
            yield Remember(gave_up=frozenset({entry.job.uid}))
        yield from _take_back(book, entry, pending, figures)


def _pending(book: Book, entry: JobEntry) -> list[Pod]:
    """Returns the trainers and parameter servers of a job that wait for nodes."""
    trainers = _pending_trainers(book, entry)
    servers = book.cluster.servers_of(entry.job)
    return trainers + [
        pod for pod in servers if pod.node_request and not (pod.node or pod.deleting)
    ]


def _pending_trainers(book: Book, entry: JobEntry) -> list[Pod]:
    pending = book.cluster.live_trainers(entry.job).pending
    return [pod for pod in pending if pod.uid not in book.released]


def _take_back(
    book: Book, entry: JobEntry, pending: list[Pod], figures: dict[str, Figure]
) -> Decisions[None]:
    starting = any(pod.node_request is NodeRequest.START for pod in pending)
    for pod in list(entry.live) if starting else _pending_trainers(book, entry):
        yield ReleaseTrainer(entry.key, pod, Reason.NODES_NOT_ADDED, figures)
    for pod in book.cluster.servers_of(entry.job) if starting else ():
        if not pod.deleting:
            yield DeleteServer(entry.key, pod, Reason.NODES_NOT_ADDED)


def request(book: Book, entry: JobEntry, missing: int, *, has_turn: bool) -> Decisions[None]:
    """Creates trainers that wait for nodes, if the job's turn has come.

    Args:
        book: The plan so far.
        entry: A job for whose trainers no capacity was found; its reason is already recorded.
        missing: Number of trainers without capacity.
        has_turn: Whether the job may request nodes now.
    """
    job, settings = entry.job, book.policy.autoscaling
    lacks_room = entry.reason in (Reason.WAITING_FOR_ROOM, Reason.FITS_NO_NODE)
    if not (lacks_room and job.managed) or settings.mode_of(job.queue) is NodeRequests.NONE:
        return
    servers = entry.servers_to_start
    if not book.quotas.allow(job, missing, servers):
        return
    yield Remember(short=frozenset({job.uid}))
    if not (entry.awaits_nodes or has_turn):
        return
    yield from _reserve_part(book, entry, missing)
    pending = _pending(book, entry)
    starts = not entry.live or any(pod.node_request is NodeRequest.START for pod in pending)
    create = Create(
        entry.key,
        Tier.GUARANTEED,
        ("",) * missing,
        Reason.NODES_REQUESTED,
        master=entry.masterless and not entry.live,  # otherwise rule 6 places it
        node_request=NodeRequest.START if starts else NodeRequest.REPLACEMENT,
        avoided_nodes=book.avoided_nodes.names(job),
    )
    yield RequestNodes(entry.key, create, servers)
    until_s = book.now_s + settings.timeout_seconds
    count = len(pending) + missing + servers
    figures: dict[str, Figure] = {"pending": count, "until": time(until_s)}
    yield Explain(entry.key, Blocked(Reason.NODES_REQUESTED, figures))


def may_come(book: Book, entry: JobEntry, *, has_turn: bool) -> bool:
    """Returns whether nodes may still be added for a job's minimum: the job has requested them, or will.

    A job has to use the existing nodes if its last request failed, or if it is due while other jobs have
    all turns.
    """
    job, history, settings = entry.job, book.history, book.policy.autoscaling
    if settings.mode_of(job.queue) is NodeRequests.NONE or not job.managed:
        return False
    if job.uid in history.vain_requests or job.uid in book.gave_up:
        return False
    waited_s = book.now_s - history.short_since.get(job.uid, book.now_s)
    return entry.awaits_nodes or has_turn or waited_s < settings.after_seconds


def turns(book: Book) -> frozenset[str]:
    """Chooses the jobs that may request nodes now, and returns their keys.

    Each namespace gets one turn before any namespace gets a second one. Jobs whose requests failed come
    last, so that jobs which no node can run take no turns from other tenants' jobs.
    """
    vain = book.history.vain_requests
    awaiting = [entry.job.namespace for entry in book.entries if entry.awaits_nodes]
    counts = Counter(awaiting)
    due = [entry for entry in book.entries if _is_due(book, entry)]
    ranked = []
    for entry in sorted(due, key=lambda d: (vain.get(d.job.uid, _NEVER)[0], d.job.created_s)):
        ranked.append((counts[entry.job.namespace], entry))
        counts[entry.job.namespace] += 1
    ranked.sort(key=lambda pair: (pair[0], vain.get(pair[1].job.uid, _NEVER)[0]))
    free = max(0, book.policy.autoscaling.max_jobs - len(awaiting))
    return frozenset(entry.key for _, entry in ranked[:free])


def _is_due(book: Book, entry: JobEntry) -> bool:
    """Returns whether a job has waited long enough, and its last request has not failed recently."""
    uid, history = entry.job.uid, book.history
    if uid not in history.short_since or entry.awaits_nodes or uid in book.gave_up:
        return False
    waited_s = book.now_s - history.short_since[uid]
    number, last_s = history.vain_requests.get(uid, _NEVER)
    paused = book.now_s - last_s < pause_s(_FIRST_PAUSE_S, _MAX_PAUSE_S, number)
    return waited_s >= book.policy.autoscaling.after_seconds and not paused


def _reserve_part(book: Book, entry: JobEntry, missing: int) -> Decisions[None]:
    """Reserves free capacity for the trainers that fit now, because kube-scheduler places them at once."""
    for number in range(missing):
        requests = entry.requests(first=not number)
        node = yield from placements.place(
            book, entry, requests, entry.job.constraints, pooled=True
        )
        if not node:
            return
