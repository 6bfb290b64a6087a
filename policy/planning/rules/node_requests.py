"""Rule 5, node requests: a minimum that fits nowhere makes an autoscaled cluster grow.

Cluster autoscalers add nodes for pending pods alone. Where the policy wants that, guaranteed trainers
that have found no capacity for a while are created without a node, with the parameter servers of
a starting job; they wait, and are taken back where no node comes (docs/decisions/0017). Surplus is
created on free capacity alone, so it never makes a cluster grow.
"""

from collections import Counter

from policy.backoff import pause_s
from policy.cluster.snapshot import Pod
from policy.decisions import Figure, time
from policy.document.model import NodeRequests
from policy.names import NodeRequest, Tier
from policy.planning.cycle_state import CycleState
from policy.planning.job_draft import JobDraft
from policy.planning.plan import Create
from policy.planning.rules import reservations
from policy.reasons import Reason

_FIRST_PAUSE_S, _MAX_PAUSE_S = 300.0, 3600.0
"""Pauses of a job after nodes that it requested did not come."""
_NEVER = (0, 0.0)
"""Of a job that has requested none in vain, as in `History.vain_requests`."""


def settle(state: CycleState) -> None:
    """Keeps the pods that wait for nodes or takes them back after a while; gives turns to jobs.

    Where a job has never had its minimum, all its pods go: a part of the minimum holds capacity
    that others can use.
    """
    for draft in state.drafts:
        pending = _pending(state, draft)
        if not pending or draft.stopped:
            continue
        settings = state.policy.autoscaling
        first_seen = state.cluster.first_seen
        since_s = min(first_seen.created_s(pod, state.now_s) for pod in pending)
        until_s = since_s + settings.timeout_seconds
        figures: dict[str, Figure] = {"pending": len(pending), "until": time(until_s)}
        if settings.mode_of(draft.job.queue) is not NodeRequests.NONE and state.now_s < until_s:
            draft.awaits_nodes = True
            draft.set_reason(Reason.NODES_REQUESTED, figures)
            continue
        if state.now_s >= until_s:
            state.gave_up.add(draft.job.uid)
        _take_back(state, draft, pending, figures)
    _give_turns(state)


def _pending(state: CycleState, draft: JobDraft) -> list[Pod]:
    """Trainers and parameter servers of a job that wait for nodes."""
    trainers = _pending_trainers(state, draft)
    servers = state.cluster.servers_of(draft.job)
    return trainers + [
        pod for pod in servers if pod.node_request and not (pod.node or pod.deleting)
    ]


def _pending_trainers(state: CycleState, draft: JobDraft) -> list[Pod]:
    pending = state.cluster.live_trainers(draft.job).pending
    return [pod for pod in pending if pod.uid not in state.released]


def _take_back(
    state: CycleState, draft: JobDraft, pending: list[Pod], figures: dict[str, Figure]
) -> None:
    starting = any(pod.node_request is NodeRequest.START for pod in pending)
    for pod in list(draft.live) if starting else _pending_trainers(state, draft):
        state.release(draft, pod, Reason.NODES_NOT_ADDED, figures)
    for pod in state.cluster.servers_of(draft.job) if starting else ():
        if not pod.deleting:
            state.release_server(draft, pod, Reason.NODES_NOT_ADDED)


def request(state: CycleState, draft: JobDraft, missing: int) -> None:
    """Plans trainers that wait for nodes, where that is due.

    Args:
        state: The plan so far.
        draft: A job for whose trainers no capacity was found; the reason is recorded.
        missing: Number of trainers that found none.
    """
    job, settings = draft.job, state.policy.autoscaling
    lacks_room = draft.reason in (Reason.WAITING_FOR_ROOM, Reason.FITS_NO_NODE)
    if not (lacks_room and job.managed) or settings.mode_of(job.queue) is NodeRequests.NONE:
        return
    servers = draft.servers_to_start
    if not state.quotas.allow(job, missing, servers):
        return
    state.short.add(job.uid)
    if not (draft.awaits_nodes or draft.has_turn):
        return
    _reserve_part(state, draft, missing)
    state.quotas.reserve(job, missing, servers)
    pending = _pending(state, draft)
    starts = not draft.live or any(pod.node_request is NodeRequest.START for pod in pending)
    draft.node_request = Create(
        draft.key,
        Tier.GUARANTEED,
        ("",) * missing,
        Reason.NODES_REQUESTED,
        master=draft.masterless and not draft.live,  # otherwise rule 6 finds it a place
        node_request=NodeRequest.START if starts else NodeRequest.REPLACEMENT,
        avoided_nodes=state.avoided_nodes.names(job),
    )
    draft.count += missing
    draft.server_creates.update(dict.fromkeys(range(servers), ""))
    draft.server_count += servers
    draft.awaits_nodes = True
    until_s = state.now_s + settings.timeout_seconds
    count = len(pending) + missing + servers
    draft.set_reason(Reason.NODES_REQUESTED, {"pending": count, "until": time(until_s)})


def may_come(state: CycleState, draft: JobDraft) -> bool:
    """Whether nodes may still be added for a job's minimum: it will request them, or has.

    Not where its last request was in vain, or where it is due and other jobs have all turns: then
    it has to do with the nodes that there are.
    """
    job, history, settings = draft.job, state.history, state.policy.autoscaling
    if settings.mode_of(job.queue) is NodeRequests.NONE or not job.managed:
        return False
    if job.uid in history.vain_requests or job.uid in state.gave_up:
        return False
    waited_s = state.now_s - history.short_since.get(job.uid, state.now_s)
    return draft.awaits_nodes or draft.has_turn or waited_s < settings.after_seconds


def _give_turns(state: CycleState) -> None:
    """Chooses the jobs that may request nodes now.

    Each namespace has a turn before any has a second one, and a job whose requests were in vain comes
    after others: jobs that no node can run take no turns from the jobs of other tenants.
    """
    vain = state.history.vain_requests
    awaiting = [draft.job.namespace for draft in state.drafts if draft.awaits_nodes]
    turns = Counter(awaiting)
    due = [draft for draft in state.drafts if _is_due(state, draft)]
    ranked = []
    for draft in sorted(due, key=lambda d: (vain.get(d.job.uid, _NEVER)[0], d.job.created_s)):
        ranked.append((turns[draft.job.namespace], draft))
        turns[draft.job.namespace] += 1
    ranked.sort(key=lambda pair: (pair[0], vain.get(pair[1].job.uid, _NEVER)[0]))
    for _, draft in ranked[: max(0, state.policy.autoscaling.max_jobs - len(awaiting))]:
        draft.has_turn = True


def _is_due(state: CycleState, draft: JobDraft) -> bool:
    """Whether a job has waited long enough, and not asked in vain lately."""
    uid, history = draft.job.uid, state.history
    if uid not in history.short_since or draft.awaits_nodes or uid in state.gave_up:
        return False
    waited_s = state.now_s - history.short_since[uid]
    number, last_s = history.vain_requests.get(uid, _NEVER)
    paused = state.now_s - last_s < pause_s(_FIRST_PAUSE_S, _MAX_PAUSE_S, number)
    return waited_s >= state.policy.autoscaling.after_seconds and not paused


def _reserve_part(state: CycleState, draft: JobDraft, missing: int) -> None:
    """Reserves what is free for some of the trainers: kube-scheduler will place these at once."""
    for number in range(missing):
        requests = draft.requests(first=not number)
        reservation = reservations.reserve(state, requests, draft.job.constraints, pooled=True)
        if reservation is None:
            return
        reservations.confirm(state, draft, [reservation])
