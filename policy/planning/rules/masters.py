"""Rule 6, masters: a job that requested a master gets it back, even at the cost of a trainer.

A master is a sidecar and cannot be added to a running pod, so it is created with a new guaranteed
trainer. Usually its former host is missing and rule 5 replaces it. Where that rule creates no
trainer, because no node has capacity or no trainer is missing, this rule releases a live one:
without their master the others would soon have nothing to do (docs/decisions/0009).
"""

from policy.cluster.snapshot import Constraints, Pod, Resources
from policy.names import Tier
from policy.planning.cycle_state import CycleState
from policy.planning.job_draft import JobDraft
from policy.planning.rules import reservations, self_preemption
from policy.planning.rules.admission import is_held
from policy.reasons import Reason


def restore_masters(state: CycleState) -> None:
    """Where a running job has no master, creates the trainer that hosts it, or frees capacity."""
    for draft in state.drafts:
        if not (draft.job.master and draft.grows and draft.live):
            continue
        host = state.cluster.master_host(draft.job)
        if host is not None:
            _maintain(state, draft, host)
        elif draft.masterless and not (draft.creates[Tier.GUARANTEED] or is_held(state, draft)):
            _replace(state, draft)


def _maintain(state: CycleState, draft: JobDraft, host: Pod) -> None:
    """Frees capacity for a waiting host; releases a host whose node is lost or deleted.

    Kubernetes itself would give up such a node only after minutes.
    """
    node = state.cluster.nodes.get(host.node)
    is_lost = host.node in state.gone_nodes or (node is not None and node.is_lost(state.now_s))
    if host in state.unschedulable_pods:
        _make_room(state, draft, host)
    elif is_lost and host in draft.live:
        state.release(draft, host, Reason.MASTER_MOVES, {"lost_node": host.node})


def _make_room(state: CycleState, draft: JobDraft, host: Pod) -> None:
    """Releases trainers for a host that exists and whose capacity another pod has taken."""
    node, victims = self_preemption.fewest_victims(
        state, draft, host.requests, host.constraints, pooled=True, allow_master_host=True
    )
    _release(state, draft, victims, node)
    if victims:
        state.capacity.reserve(node, host.requests)


def _replace(state: CycleState, draft: JobDraft) -> None:
    """Creates one guaranteed trainer, and releases at least one live trainer for it.

    On a node that the job avoids where no other helps.
    """
    job, requests = draft.job, draft.requests(first=True)
    node, victims = _host_node(state, draft, requests, job.constraints)
    submitted = state.cluster.jobs[draft.key].constraints
    if not victims and submitted != job.constraints:
        node, victims = _host_node(state, draft, requests, submitted)
        state.avoided_nodes.waive(draft.key)
    _release(state, draft, victims, node)
    if victims:
        state.reserve(job, node, requests)
        reservations.release_excess(state, draft, node)
        draft.add_creates(Tier.GUARANTEED, [node])


def _host_node(
    state: CycleState, draft: JobDraft, requests: Resources, constraints: Constraints
) -> tuple[str, list[Pod]]:
    """A node for a trainer that hosts the master, and the trainers to release for it."""
    node, _ = state.capacity.choose_node(requests, constraints, pooled=True)
    if node:
        return node, draft.live[:1]
    return self_preemption.fewest_victims(
        state, draft, requests, constraints, pooled=True, allow_master_host=True
    )


def _release(state: CycleState, draft: JobDraft, victims: list[Pod], node: str) -> None:
    for pod in victims:
        state.release(draft, pod, Reason.MASTER_MOVES, {"new_node": node})
