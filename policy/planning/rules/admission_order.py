"""Rule 5, admission order: nodes are held for a minimum that has waited long.

Jobs start where they fit, so younger small jobs could always take the capacity for which a large minimum
waits. If the policy demands that jobs start in order, the nodes that the oldest job can use are held for
it: no younger job starts there. Meanwhile running trainers stay, lost trainers are replaced, and surplus
uses the nodes. One job at a time is at the head of the line, for a limited time (docs/decisions/0022).
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from policy.cluster import amounts
from policy.decisions import time
from policy.document.model import AdmissionOrder
from policy.planning.book import Book
from policy.planning.decisions import Blocked
from policy.planning.free_capacity import NOWHERE, When
from policy.planning.job_entry import JobEntry
from policy.planning.plan import Head, Line
from policy.reasons import Reason

_MAX_EXAMINED = 4
"""Number of jobs that one plan examines to find the next head, if earlier ones could never start."""
_MAX_VAIN = 256
"""Number of jobs whose failed holds are remembered."""
_BLOCKED = (Reason.WAITING_FOR_ROOM, Reason.QUEUED)


def turn(entry: JobEntry) -> tuple[int, float, str]:
    """Returns the sort key of jobs: the highest priority first, then the oldest job."""
    return -entry.facts.priority, entry.job.created_s, entry.key


def missing(entry: JobEntry) -> int:
    """Returns the number of guaranteed trainers to create; 0 or less if the job has its minimum."""
    present = entry.guaranteed - entry.facts.stranded if entry.job.managed else entry.count
    return entry.covered_min - present


@dataclass(frozen=True, slots=True)
class Held:
    """The line of waiting jobs, and the nodes that are held for its head."""

    line: Line
    nodes: frozenset[str] = NOWHERE
    younger: frozenset[str] = frozenset()
    """Keys of the jobs that must not start on the held nodes."""

    def closed_to(self, entry: JobEntry) -> frozenset[str]:
        """Returns the nodes on which a job must not start."""
        return self.nodes if entry.key in self.younger else NOWHERE


def hold_nodes(book: Book) -> Held:
    """Holds nodes for the head of the line: younger jobs must not start there."""
    if book.policy.admission.order is not AdmissionOrder.STRICT_FIFO:
        return Held(Line())
    before = book.history.line
    blocked = {e.job.uid: e for e in book.entries if e.grows and missing(e) > 0}
    head, vain, nodes = before.head, before.vain, NOWHERE
    if head is not None:
        nodes = _nodes_of_head(book, blocked, head)
        if not nodes and not _has_minimum(book, head):
            vain = _after_vain(vain, head, book.now_s)
    if not nodes:
        head, nodes = _next_head(book, blocked, vain)
    line = Line(before.blocked_since, head, vain)
    if head is None:
        return Held(line)
    first = turn(blocked[head.uid])
    younger = (e.key for e in blocked.values() if turn(e) > first and not e.live)
    return Held(line, nodes, frozenset(younger))


def _nodes_of_head(book: Book, blocked: Mapping[str, JobEntry], head: Head) -> frozenset[str]:
    """Returns the nodes that are still held for the head of the line; none if its hold is over."""
    waits = head.uid in blocked and head.uid in book.history.line.blocked_since
    expired = book.now_s - head.since_s >= book.policy.admission.hold_seconds
    return _nodes_for(book, blocked[head.uid]) if waits and not expired else NOWHERE


def _next_head(
    book: Book, blocked: Mapping[str, JobEntry], vain: Mapping[str, tuple[int, float]]
) -> tuple[Head | None, frozenset[str]]:
    """Returns the job for which nodes are held from now on, and those nodes."""
    for entry in _ranked(book, blocked, vain)[:_MAX_EXAMINED]:
        nodes = _nodes_for(book, entry)
        if nodes:
            return Head(entry.key, entry.job.uid, book.now_s), nodes
    return None, NOWHERE


def _has_minimum(book: Book, head: Head) -> bool:
    """Returns whether the head of the line has its minimum, so that its hold succeeded."""
    return any(
        entry.job.uid == head.uid and entry.grows and missing(entry) <= 0 for entry in book.entries
    )


def _after_vain(
    vain: Mapping[str, tuple[int, float]], head: Head, now_s: float
) -> Mapping[str, tuple[int, float]]:
    """Adds a failed hold; the next hold may start after a pause that is as long as the failed hold."""
    number = vain.get(head.key, (0, 0.0))[0] + 1
    newest = sorted(vain.items(), key=lambda item: item[1][1])[1 - _MAX_VAIN :]
    return {**dict(newest), head.key: (number, 2 * now_s - head.since_s)}


def _ranked(
    book: Book, blocked: Mapping[str, JobEntry], vain: Mapping[str, tuple[int, float]]
) -> list[JobEntry]:
    """Returns the jobs that have waited long enough to be the head of the line, best candidate first.

    Jobs are sorted by the failed holds of their namespace, then by their own failed holds, then by
    `turn`. A namespace with many jobs that never fit thus keeps nodes from others only briefly.
    """
    if any(until_s > book.now_s for _, until_s in vain.values()):
        return []
    since_s = book.history.line.blocked_since
    after_s = book.policy.admission.after_seconds
    of_namespace = Counter[str]()
    for key, (number, _) in vain.items():
        of_namespace[key.split("/")[0]] += number
    return sorted(
        (
            entry
            for uid, entry in blocked.items()
            if uid in since_s and book.now_s - since_s[uid] >= after_s
        ),
        key=lambda entry: (
            of_namespace[entry.job.namespace],
            vain.get(entry.key, (0, 0.0))[0],
            turn(entry),
        ),
    )


def _nodes_for(book: Book, entry: JobEntry) -> frozenset[str]:
    """Returns the nodes for which a job waits: on each, one of its pods would fit without other jobs.

    The result is empty if the missing pods would not fit even without other jobs: services use the
    capacity, or the cluster is too small.
    """
    spec, servers = entry.job.servers, entry.servers_to_start
    job, capacity = book.cluster.jobs[entry.key], book.capacity
    held, trainers = set[str](), 0
    room = _room_without_jobs(book)
    for_trainers = capacity.open_nodes(job.constraints, pooled=True)
    for_servers = capacity.open_nodes(job.server_constraints, pooled=False) if servers else ()
    for name in {*for_trainers, *for_servers}:
        fitting = amounts.times(entry.job.requests, room[name]) if name in for_trainers else 0
        trainers += fitting
        open_to_servers = bool(servers) and name in for_servers
        fitting_servers = (
            amounts.times(spec.requests, room[name]) if spec and open_to_servers else 0
        )
        servers -= min(servers, fitting_servers)
        if fitting or fitting_servers:
            held.add(name)
    return frozenset(held) if trainers >= missing(entry) and not servers else NOWHERE


def _room_without_jobs(book: Book) -> dict[str, dict[str, int]]:
    """Returns node -> free capacity if no job had trainers or servers there."""
    nodes = book.cluster.nodes
    room = {name: dict(book.capacity.free_at(name, When.RECLAIMED)) for name in nodes}
    for entry in book.entries:
        for pod in (*entry.live[len(entry.surplus) :], *book.cluster.servers_of(entry.job)):
            if pod.node in room and not (pod.deleting or pod.terminal):
                amounts.add(room[pod.node], pod.requests)
    return room


def explained(book: Book, held: Held, entry: JobEntry, blocked: Blocked) -> Blocked:
    """Adds the effect of the order to the reason why a job lacks capacity."""
    head, policy = held.line.head, book.policy.admission
    if blocked.reason is not Reason.WAITING_FOR_ROOM:
        return blocked
    if head is None:
        return _with_wait(book, held.line, entry, blocked)
    until = time(head.since_s + policy.hold_seconds)
    if held.closed_to(entry):
        return Blocked(Reason.QUEUED, {"job": head.key, "until": until})
    if entry.key == head.key:
        return Blocked(Reason.WAITING_FOR_ROOM, {**blocked.figures, "until": until})
    return blocked


def _with_wait(book: Book, line: Line, entry: JobEntry, blocked: Blocked) -> Blocked:
    """Adds the time from which nodes will be held for a waiting job, if that time is in the future."""
    policy = book.policy.admission
    if policy.order is not AdmissionOrder.STRICT_FIFO:
        return blocked
    since_s = line.blocked_since.get(entry.job.uid, book.now_s)
    pause_s = max((until_s for _, until_s in line.vain.values()), default=0.0)
    from_s = max(since_s + policy.after_seconds, pause_s)
    if from_s <= book.now_s:
        return blocked
    return Blocked(blocked.reason, {**blocked.figures, "held_from": time(from_s)})


def line_after(book: Book, held: Held) -> Line:
    """Returns the line for the next plan, with the jobs that wait now."""
    if book.policy.admission.order is not AdmissionOrder.STRICT_FIFO:
        return held.line
    before = held.line.blocked_since
    blocked_since = {
        entry.job.uid: before.get(entry.job.uid, book.now_s)
        for entry in book.entries
        if entry.reason in _BLOCKED
    }
    return Line(blocked_since, held.line.head, held.line.vain)
