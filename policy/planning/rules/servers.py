"""Rule 3, parameter servers: those of running jobs get capacity before all other pods of jobs.

Without one of its servers a job makes no progress, so a missing one is created again under the same
index, even at the cost of one of the job's trainers. The first servers are created with the first
trainers, all or nothing (`policy.planning.rules.admission`), and are deleted after the last trainer has
ended (docs/decisions/0013).
"""

from policy.cluster.snapshot import RESTART_S, Constraints, Pod, ServerSpec
from policy.decisions import Figure
from policy.planning.cycle_state import CycleState
from policy.planning.job_draft import JobDraft
from policy.planning.rules import demand_changes, reservations, self_preemption
from policy.planning.rules.reservations import Reservation, count_gains
from policy.reasons import Reason

_WITHOUT_CLAIM_S = 300.0
"""How long Kubernetes itself waits before it gives up the pods of a node that is not ready."""


def maintain(state: CycleState) -> None:
    """Deletes servers that have ended, are lost or no longer needed; replaces missing ones."""
    for draft in state.drafts:
        pods = state.cluster.servers_of(draft.job)
        backoff = state.creation_backoffs.get(draft.job.uid)
        if draft.stopped or (backoff is not None and backoff.partial):
            _release_all(state, draft, pods)
        elif draft.grows and draft.server_count and draft.job.servers is not None:
            _release_lost(state, draft, pods)
            _replace_missing(state, draft, draft.job.servers, pods)


def reserve_initial(state: CycleState, draft: JobDraft, trainers: int) -> list[Reservation] | None:
    """Reserves capacity for the servers that a job starts with.

    Args:
        state: The plan so far.
        draft: The job.
        trainers: Number of trainers that start with them.

    Returns:
        None where not all servers fit, other jobs do not give room for them, or the quotas do not
        allow them and the trainers.
    """
    spec, count = draft.job.servers, draft.servers_to_start
    if spec is None or not count:
        return []
    if not state.quotas.allow(draft.job, trainers, count):
        return None
    constraints = _constraints(state, draft)
    slots = state.capacity.slots(spec.requests, constraints, draft.closed, pooled=False)
    if slots < count:
        return None
    attempts = (_reserve(state, draft, spec) for _ in range(count))
    server_reservations = [reservation for reservation in attempts if reservation is not None]
    if not demand_changes.may_take(draft, count_gains(server_reservations), minimum=True):
        reservations.unreserve(state, server_reservations)
        return None
    state.quotas.reserve(draft.job, 0, count)
    return server_reservations


def unreserve_initial(
    state: CycleState, draft: JobDraft, server_reservations: list[Reservation]
) -> None:
    """Undoes `reserve_initial`."""
    reservations.unreserve(state, server_reservations)
    state.quotas.unreserve(draft.job, 0, len(server_reservations))


def confirm_initial(
    state: CycleState, draft: JobDraft, server_reservations: list[Reservation]
) -> None:
    """Plans the creation of a starting job's servers; from now on they count as the job's."""
    reservations.confirm(state, draft, server_reservations)
    draft.server_count += len(server_reservations)
    draft.server_creates.update(enumerate(reservation.node for reservation in server_reservations))


def _reserve(state: CycleState, draft: JobDraft, spec: ServerSpec) -> Reservation | None:
    constraints = _constraints(state, draft)
    return reservations.reserve(state, spec.requests, constraints, draft.closed, pooled=False)


def _constraints(state: CycleState, draft: JobDraft) -> Constraints:
    """Where servers may run: also on nodes that trainers avoid."""
    return state.cluster.jobs[draft.key].server_constraints


def _release_all(state: CycleState, draft: JobDraft, pods: list[Pod]) -> None:
    """Deletes all servers once the last trainer has ended, as trainers may fetch parameters."""
    trainers = state.cluster.members.get(draft.key, {}).values()
    if any(not pod.terminal and pod.owner_uid == draft.job.uid for pod in trainers):
        return
    for pod in pods:
        if not pod.deleting:
            state.release_server(draft, pod, Reason.JOB_STOPPED)


def _release_lost(state: CycleState, draft: JobDraft, pods: list[Pod]) -> None:
    """Deletes pods that will not serve again and whose name their replacement needs."""
    for pod in pods:
        node_lost = _is_node_lost(state, draft, pod)
        if node_lost or (pod.terminal and not pod.deleting):
            state.release_server(draft, pod, Reason.SERVER_MOVES, node_lost=node_lost)


def _is_node_lost(state: CycleState, draft: JobDraft, pod: Pod) -> bool:
    """Whether a pod's node is lost or deleted.

    Without a claim the parameters go with the pod: as long as the kubelet reports something, the
    server stays until Kubernetes itself would give it up.
    """
    node, spec = state.cluster.nodes.get(pod.node), draft.job.servers
    has_claim = spec is not None and bool(spec.claim)
    if node is None:
        return pod.node in state.gone_nodes
    return node.is_lost(state.now_s, RESTART_S if has_claim else _WITHOUT_CLAIM_S)


def _replace_missing(state: CycleState, draft: JobDraft, spec: ServerSpec, pods: list[Pod]) -> None:
    """Reserves capacity for every missing server; creates those whose name is free.

    A server whose old pod is still being deleted keeps its reservation meanwhile.
    """
    existing = {pod.server for pod in pods}
    running = {
        pod.server
        for pod in pods
        if not (pod.terminal or pod.deleting or _is_node_lost(state, draft, pod))
    }
    for number in range(spec.count):
        if number in running:
            continue
        reservation = _reserve(state, draft, spec)
        if reservation is not None:
            reservations.confirm(state, draft, [reservation])
        node = (
            reservation.node if reservation is not None else _make_room(state, draft, spec, number)
        )
        if node and number not in existing:
            draft.server_creates[number] = node


def _make_room(state: CycleState, draft: JobDraft, spec: ServerSpec, number: int) -> str:
    """Releases trainers of the job for a server; its node, or "" where that does not help."""
    node, victims = self_preemption.fewest_victims(
        state,
        draft,
        spec.requests,
        _constraints(state, draft),
        pooled=False,
        allow_master_host=False,
    )
    for pod in victims:
        figures: dict[str, Figure] = {"new_node": node, "server": number}
        state.release(draft, pod, Reason.SERVER_MOVES, figures)
    if victims:
        state.reserve_place(node, spec.requests)
    return node
