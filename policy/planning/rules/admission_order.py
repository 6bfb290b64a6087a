"""Rule 5, admission order: a minimum that has waited long keeps its nodes from younger jobs.

Jobs start where they fit, so younger small jobs could always take the capacity that a large minimum
waits for. Where the policy wants jobs to start in order, the nodes that the oldest job may use are held
for it: no younger job starts there. Running trainers stay, lost ones are replaced, and surplus uses the
nodes meanwhile. One job at a time is at the head of the line, for a limited time (docs/decisions/0022).
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
"""How many jobs one plan examines as the next head, where earlier ones could never start."""
_MAX_VAIN = 256
"""How many jobs with failed holds are remembered."""
_BLOCKED = (Reason.WAITING_FOR_ROOM, Reason.QUEUED)


def turn(entry: JobEntry) -> tuple[int, float, str]:
    """Returns the sort key of jobs: the highest priority first, then the oldest job."""
    return -entry.facts.priority, entry.job.created_s, entry.key


def missing(entry: JobEntry) -> int:
    """Returns the number of guaranteed trainers to create; 0 or less where a job has its minimum."""
    present = entry.guaranteed - entry.facts.stranded if entry.job.managed else entry.count
    return entry.covered_min - present


@dataclass(frozen=True, slots=True)
class Held:
    """The line of jobs that wait, and the nodes that are held for its head."""

    line: Line
    nodes: frozenset[str] = NOWHERE
    younger: frozenset[str] = frozenset()
    """Keys of the jobs that must not start on these nodes."""

    def closed_to(self, entry: JobEntry) -> frozenset[str]:
        """Returns the nodes that a job must not start on."""
        return self.nodes if entry.key in self.younger else NOWHERE


def hold_nodes(book: Book) -> Held:
    """Holds nodes for the head of the line: closes them to younger jobs that have not started."""
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
    """Returns the nodes that are still held for the head of the line; none where its hold is over."""
    waits = head.uid in blocked and head.uid in book.history.line.blocked_since
    expired = book.now_s - head.since_s >= book.policy.admission.hold_seconds
    return _nodes_for(book, blocked[head.uid]) if waits and not expired else NOWHERE


def _next_head(
    book: Book, blocked: Mapping[str, JobEntry], vain: Mapping[str, tuple[int, float]]
) -> tuple[Head | None, frozenset[str]]:
    """Returns the job for which nodes are held from now on, and these nodes."""
    for entry in _ranked(book, blocked, vain)[:_MAX_EXAMINED]:
        nodes = _nodes_for(book, entry)
        if nodes:
            return Head(entry.key, entry.job.uid, book.now_s), nodes
    return None, NOWHERE


def _has_minimum(book: Book, head: Head) -> bool:
    """Returns whether the head of the line has started, so that its hold was a success."""
    return any(
        entry.job.uid == head.uid and entry.grows and missing(entry) <= 0 for entry in book.entries
    )


def _after_vain(
    vain: Mapping[str, tuple[int, float]], head: Head, now_s: float
) -> Mapping[str, tuple[int, float]]:
    """Adds a failed hold; the next one may start after a pause of the same length."""
    number = vain.get(head.key, (0, 0.0))[0] + 1
    newest = sorted(vain.items(), key=lambda item: item[1][1])[1 - _MAX_VAIN :]
    return {**dict(newest), head.key: (number, 2 * now_s - head.since_s)}


def _ranked(
    book: Book, blocked: Mapping[str, JobEntry], vain: Mapping[str, tuple[int, float]]
) -> list[JobEntry]:
    """Returns the jobs that have waited long enough to be the head of the line, the next first.

    The namespace with the fewest failed holds comes first, then the job with the fewest, then the
    oldest: a namespace with many jobs that never fit keeps nodes from others only briefly.
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
    """Returns the nodes that a job waits for: one of its pods would fit there without other jobs.

    Empty where the missing pods would not fit even then: services are in the way, or the cluster is
    too small.
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
    """Returns node -> free capacity there without the trainers and servers of all jobs."""
    nodes = book.cluster.nodes
    room = {name: dict(book.capacity.free_at(name, When.RECLAIMED)) for name in nodes}
    for entry in book.entries:
        for pod in (*entry.live[len(entry.surplus) :], *book.cluster.servers_of(entry.job)):
            if pod.node in room and not (pod.deleting or pod.terminal):
                amounts.add(room[pod.node], pod.requests)
    return room


def explained(book: Book, held: Held, entry: JobEntry, blocked: Blocked) -> Blocked:
    """Adds to the reason of a job that lacks capacity what the order has to do with it."""
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
    """Adds from when on nodes are held for a job that waits, while that is ahead."""
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
    """Returns for the next plan which jobs wait, and whether one still is the head of the line."""
    if book.policy.admission.order is not AdmissionOrder.STRICT_FIFO:
        return held.line
    before = held.line.blocked_since
    blocked_since = {
        entry.job.uid: before.get(entry.job.uid, book.now_s)
        for entry in book.entries
        if entry.reason in _BLOCKED
    }
    return Line(blocked_since, held.line.head, held.line.vain)
