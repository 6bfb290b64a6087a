"""Rule 5, admission order: a minimum that has waited long keeps its nodes from younger jobs.

Jobs start where they fit, so small ones that came later would take for ever what a large minimum
waits for. Where the policy wants them to start in order, the nodes that a job may use are held for it:
no younger job starts there. What runs stays, is replaced when it is lost, and surplus uses the nodes
meanwhile. One job at a time is at the head of the line, and not for ever (docs/decisions/0022).
"""

from collections import Counter
from collections.abc import Mapping

from policy.cluster import amounts
from policy.decisions import Figure, time
from policy.document.model import AdmissionOrder
from policy.planning.cycle_state import CycleState
from policy.planning.free_capacity import NOWHERE, When
from policy.planning.job_draft import JobDraft
from policy.planning.plan import Head, Line
from policy.reasons import Reason

_MAX_EXAMINED = 4
"""Jobs for which one plan adds up all nodes, where those before them could never start."""
_MAX_VAIN = 256
"""Jobs whose holds in vain are remembered."""
_BLOCKED = (Reason.WAITING_FOR_ROOM, Reason.QUEUED)


def turn(draft: JobDraft) -> tuple[int, float, str]:
    """Sort key of jobs: those of the highest priority first, and of these the oldest."""
    return -draft.priority, draft.job.created_s, draft.key


def missing(draft: JobDraft) -> int:
    """Number of guaranteed trainers to create; 0 or less where a job has its minimum."""
    present = draft.guaranteed - draft.stranded if draft.job.managed else draft.count
    return draft.covered_min - present


def hold_nodes(state: CycleState) -> None:
    """Holds nodes for the head of the line: closes them to younger jobs that have not started."""
    if state.policy.admission.order is not AdmissionOrder.STRICT_FIFO:
        return
    before = state.history.line
    blocked = {d.job.uid: d for d in state.drafts if d.grows and missing(d) > 0}
    head, vain, nodes = before.head, before.vain, NOWHERE
    if head is not None:
        nodes = _nodes_of_head(state, blocked, head)
        if not nodes and not _has_minimum(state, head):
            vain = _after_vain(vain, head, state.now_s)
    if not nodes:
        head, nodes = _next_head(state, blocked, vain)
    state.line = Line(before.blocked_since, head, vain)
    if head is not None:
        first = turn(blocked[head.uid])
        for draft in blocked.values():
            if turn(draft) > first and not draft.live:
                draft.closed = nodes


def _nodes_of_head(
    state: CycleState, blocked: Mapping[str, JobDraft], head: Head
) -> frozenset[str]:
    """The nodes that are still held for the head of the line; none where its hold is over."""
    waits = head.uid in blocked and head.uid in state.history.line.blocked_since
    expired = state.now_s - head.since_s >= state.policy.admission.hold_seconds
    return _nodes_for(state, blocked[head.uid]) if waits and not expired else NOWHERE


def _next_head(
    state: CycleState, blocked: Mapping[str, JobDraft], vain: Mapping[str, tuple[int, float]]
) -> tuple[Head | None, frozenset[str]]:
    """The job for which nodes are held from now on, and these nodes."""
    for draft in _ranked(state, blocked, vain)[:_MAX_EXAMINED]:
        nodes = _nodes_for(state, draft)
        if nodes:
            return Head(draft.key, draft.job.uid, state.now_s), nodes
    return None, NOWHERE


def _has_minimum(state: CycleState, head: Head) -> bool:
    """Whether the head of the line has started, which ends its hold as it should."""
    return any(
        draft.job.uid == head.uid and draft.grows and missing(draft) <= 0 for draft in state.drafts
    )


def _after_vain(
    vain: Mapping[str, tuple[int, float]], head: Head, now_s: float
) -> Mapping[str, tuple[int, float]]:
    """Adds a failed hold; the next one may start after a pause of the same length."""
    number = vain.get(head.key, (0, 0.0))[0] + 1
    newest = sorted(vain.items(), key=lambda item: item[1][1])[1 - _MAX_VAIN :]
    return {**dict(newest), head.key: (number, 2 * now_s - head.since_s)}


def _ranked(
    state: CycleState, blocked: Mapping[str, JobDraft], vain: Mapping[str, tuple[int, float]]
) -> list[JobDraft]:
    """The jobs that have waited long enough to be the head of the line, the next first.

    Those of namespaces with the fewest holds in vain, of these the jobs with the fewest, then the
    oldest: a namespace with many jobs that never fit keeps no nodes from others for long.
    """
    if any(until_s > state.now_s for _, until_s in vain.values()):
        return []
    since_s = state.history.line.blocked_since
    after_s = state.policy.admission.after_seconds
    of_namespace = Counter[str]()
    for key, (number, _) in vain.items():
        of_namespace[key.split("/")[0]] += number
    return sorted(
        (
            draft
            for uid, draft in blocked.items()
            if uid in since_s and state.now_s - since_s[uid] >= after_s
        ),
        key=lambda draft: (
            of_namespace[draft.job.namespace],
            vain.get(draft.key, (0, 0.0))[0],
            turn(draft),
        ),
    )


def _nodes_for(state: CycleState, draft: JobDraft) -> frozenset[str]:
    """The nodes that a job waits for: those where one of its pods would fit without other jobs.

    Empty where what it lacks would not fit even then: services are in the way, or the cluster is
    too small.
    """
    spec, servers = draft.job.servers, draft.servers_to_start
    job, capacity = state.cluster.jobs[draft.key], state.capacity
    held, trainers = set[str](), 0
    room = _room_without_jobs(state)
    for_trainers = capacity.open_nodes(job.constraints, pooled=True)
    for_servers = capacity.open_nodes(job.server_constraints, pooled=False) if servers else ()
    for name in {*for_trainers, *for_servers}:
        fitting = amounts.times(draft.job.requests, room[name]) if name in for_trainers else 0
        trainers += fitting
        open_to_servers = bool(servers) and name in for_servers
        fitting_servers = (
            amounts.times(spec.requests, room[name]) if spec and open_to_servers else 0
        )
        servers -= min(servers, fitting_servers)
        if fitting or fitting_servers:
            held.add(name)
    return frozenset(held) if trainers >= missing(draft) and not servers else NOWHERE


def _room_without_jobs(state: CycleState) -> dict[str, dict[str, int]]:
    """Node -> what would be free there without the trainers and servers of all jobs."""
    nodes = state.cluster.nodes
    room = {name: dict(state.capacity.free_at(name, When.RECLAIMED)) for name in nodes}
    for draft in state.drafts:
        for pod in (*draft.live[len(draft.surplus) :], *state.cluster.servers_of(draft.job)):
            if pod.node in room and not (pod.deleting or pod.terminal):
                amounts.add(room[pod.node], pod.requests)
    return room


def explain(state: CycleState, draft: JobDraft) -> None:
    """Records for a job that lacks room what the order has to do with it."""
    line, policy = state.line, state.policy.admission
    if draft.reason is not Reason.WAITING_FOR_ROOM:
        return
    if line.head is None:
        _explain_wait(state, draft)
        return
    until = time(line.head.since_s + policy.hold_seconds)
    if draft.closed:
        draft.set_reason(Reason.QUEUED, {"job": line.head.key, "until": until})
    elif draft.key == line.head.key:
        figures: dict[str, Figure] = {**draft.figures, "until": until}
        draft.set_reason(Reason.WAITING_FOR_ROOM, figures)


def _explain_wait(state: CycleState, draft: JobDraft) -> None:
    """Records from when on nodes are held for a job that waits, while that is ahead."""
    policy, line = state.policy.admission, state.line
    if policy.order is not AdmissionOrder.STRICT_FIFO:
        return
    since_s = line.blocked_since.get(draft.job.uid, state.now_s)
    pause_s = max((until_s for _, until_s in line.vain.values()), default=0.0)
    from_s = max(since_s + policy.after_seconds, pause_s)
    if from_s > state.now_s:
        draft.set_reason(draft.reason, {**draft.figures, "held_from": time(from_s)})


def record_line(state: CycleState) -> None:
    """Notes for the next plan which jobs wait, and whether one still is the head of the line."""
    if state.policy.admission.order is not AdmissionOrder.STRICT_FIFO:
        return
    before = state.line.blocked_since
    blocked_since = {
        draft.job.uid: before.get(draft.job.uid, state.now_s)
        for draft in state.drafts
        if draft.reason in _BLOCKED
    }
    state.line = Line(blocked_since, state.line.head, state.line.vain)
