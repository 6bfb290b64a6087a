"""Rule 5, admission: a job's first guaranteed trainers are created all together or not at all.

So partly started jobs never block each other. The parameter servers of a starting job are part
of the gang. Surplus of other jobs counts as reclaimable: a new job starts at once on a full
cluster.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence

from policy.backoff import pause_s
from policy.cluster.snapshot import Pod
from policy.decisions import Figure, time
from policy.names import Tier
from policy.planning.cycle_state import CycleState
from policy.planning.job_draft import JobDraft
from policy.planning.rules import (
    admission_order,
    creation_backoffs,
    demand_changes,
    node_requests,
    quota_relief,
    reservations,
    servers,
)
from policy.planning.rules.reservations import Reservation
from policy.reasons import Reason

_FIRST_BACKOFF_S = 10.0
_MAX_BACKOFF_S = 360.0


def backoff_s(failures_in_row: int) -> float:
    """Seconds without creations after the last of several failures: 10 s, doubling to 6 min.

    These are the delays of the built-in Job controller.
    """
    return pause_s(_FIRST_BACKOFF_S, _MAX_BACKOFF_S, failures_in_row)


def backing_off(state: CycleState, draft: JobDraft) -> bool:
    """Whether a job's trainers failed so recently that none is created now; records that reason."""
    accounting = draft.job.accounting
    until_s = accounting.last_failure_s + backoff_s(accounting.failures_in_row)
    if until_s <= state.now_s:
        return False
    draft.set_reason(
        Reason.BACKING_OFF, {"failures": accounting.failures_in_row, "until": time(until_s)}
    )
    return True


def replacing(draft: JobDraft, step: int) -> bool:
    """Whether other trainers must end before `step` more are created; records that reason.

    Under `podReplacementPolicy: Failed` a trainer counts against max until it has ended, those that
    this plan releases included. Replacements of stranded trainers come on top.
    """
    present = draft.initial_count + draft.leaving + sum(map(len, draft.creates.values()))
    excess = present + step - draft.job.max_trainers - draft.stranded
    if excess <= 0 or not draft.job.replaces_ended:
        return False
    draft.set_reason(Reason.REPLACING, {"trainers": excess})
    return True


def is_held(state: CycleState, draft: JobDraft) -> bool:
    """Whether no guaranteed trainer is created now, for failures or refusals; records the reason."""
    return backing_off(state, draft) or creation_backoffs.is_refused(state, draft)


def admit(state: CycleState) -> None:
    """Creates missing guaranteed trainers, the oldest job first."""
    creation_backoffs.take_back_partial_starts(state)
    node_requests.settle(state)
    admission_order.hold_nodes(state)
    for draft in sorted(state.drafts, key=admission_order.turn):
        missing = admission_order.missing(draft)
        if not draft.grows or missing <= 0:
            continue
        quota_relief.hold(state, draft)
        if is_held(state, draft) or replacing(draft, missing):
            if draft.reason is Reason.REFUSED:
                quota_relief.relieve(state, draft, missing)
            continue
        count, server_count = draft.count, draft.server_count
        nodes = _reserve_job(state, draft, missing)
        draft.add_creates(Tier.GUARANTEED, nodes)
        missing = admission_order.missing(draft)  # without what its queue's quota does not cover
        if len(nodes) < missing:
            node_requests.request(state, draft, missing - len(nodes))
        low = draft.covered_min
        new_count = min(draft.count, low) - min(count, low)
        state.quotas.claim(draft.job, new_count, draft.server_count - server_count)
    admission_order.record_line(state)


def _reserve_job(state: CycleState, draft: JobDraft, missing: int) -> list[str]:
    """Reserves capacity for a job's missing trainers; returns the nodes of those to create.

    The parameter servers of a starting job are created with them. Surplus in the same quota
    counts as reclaimable too: it is released if all missing trainers then fit.
    """
    missing = _covered_by_own_quota(state, draft, missing)
    if missing <= 0:
        return []
    victims = _quota_victims(state, draft, missing)
    for donor, pod in victims:
        state.quotas.release(donor.job, [pod])
    all_or_none = bool(victims) or not draft.live
    server_reservations = servers.reserve_initial(state, draft, missing)
    placeable, trainer_reservations = 0, list[Reservation]()
    if server_reservations is not None:
        placeable = _placeable(state, draft, missing)
        if placeable == missing or not all_or_none:
            gains = reservations.count_gains(server_reservations)
            trainer_reservations = _reserve_trainers(state, draft, missing, gains)
            placeable = len(trainer_reservations)
        else:
            state.quotas.reserve(draft.job, placeable)
    for donor, pod in victims:
        state.quotas.restore(donor.job, [pod])
    if placeable < missing:
        if draft.reason is not Reason.CHANGED_OFTEN:
            _explain(state, draft, missing - placeable, served=server_reservations is not None)
            admission_order.explain(state, draft)
        if all_or_none:
            reservations.unreserve(state, trainer_reservations)
            state.quotas.unreserve(draft.job, placeable)
            servers.unreserve_initial(state, draft, server_reservations or [])
            return []
    for donor, pod in victims:
        state.release(donor, pod, Reason.QUOTA_REACHED, {"job": draft.key})
    gains = reservations.count_gains([*trainer_reservations, *(server_reservations or ())])
    draft.gains += max(gains, sum(donor is not draft for donor, _ in victims))
    reservations.confirm(state, draft, trainer_reservations)
    servers.confirm_initial(state, draft, server_reservations or [])
    return [reservation.node for reservation in trainer_reservations]


def _covered_by_own_quota(state: CycleState, draft: JobDraft, missing: int) -> int:
    """How many of a job's missing trainers its queue's nominal quota covers: minimums do not borrow.

    All or none where the job starts. Other jobs of the queue may have started since the plan began.
    """
    wanted, server_count = draft.covered_min - draft.claimed, draft.servers_to_start
    lacking = wanted - state.quotas.room_for_minimum(draft.job, wanted, server_count)
    if lacking and not draft.live:
        explain_own_quota(state, draft, missing)
        return 0
    draft.covered_min -= lacking
    return missing - lacking


def explain_own_quota(state: CycleState, draft: JobDraft, missing: int) -> None:
    """Records for a job how much of its minimum its queue's nominal quota does not cover."""
    server_count = draft.servers_to_start
    lack = state.quotas.lack_for_minimum(draft.job, missing, server_count)
    draft.set_reason(Reason.QUOTA_REACHED, {**lack, "missing": missing})


def _placeable(state: CycleState, draft: JobDraft, missing: int) -> int:
    """How many of a job's missing trainers room and quotas allow, at most.

    A minimum that nothing can start, such as ten thousand trainers, is thus not placed and taken back
    again in every plan.
    """
    numbers = range(1, 1 + min(missing, _slots(state, draft)))
    return bisect_left(numbers, True, key=lambda count: not state.quotas.allow(draft.job, count))


def _slots(state: CycleState, draft: JobDraft) -> int:
    """How many trainers of a job could be placed, by room alone; at most, if it lacks its master."""
    constraints = state.cluster.jobs[draft.key].constraints  # avoided nodes are tried, too
    needs = (draft.job.requests, draft.requests(first=True))
    slots = [
        state.capacity.slots(requests, constraints, draft.closed, pooled=True) for requests in needs
    ]
    return slots[0] if slots[1] else 0


def _reserve_trainers(
    state: CycleState, draft: JobDraft, missing: int, gains: int
) -> list[Reservation]:
    """Reserves capacity and quota for up to `missing` trainers; `gains` servers have that of surplus.

    On nodes that the job avoids only where they fit on no others: a crash may have been its own,
    and a node that fails again costs less than a minimum that waits. Not while an autoscaler may
    still add nodes for them.
    """
    job = draft.job
    constraints, submitted = job.constraints, state.cluster.jobs[draft.key].constraints
    trainer_reservations: list[Reservation] = []
    while len(trainer_reservations) < missing and state.quotas.allow(job):
        requests = draft.requests(first=not trainer_reservations)
        reservation = reservations.reserve(state, requests, constraints, draft.closed, pooled=True)
        avoids = constraints != submitted and not node_requests.may_come(state, draft)
        if reservation is None and avoids:
            state.avoided_nodes.waive(draft.key)
            constraints = submitted
            continue
        if reservation is None:
            break
        gains += not reservation.is_free
        if not (reservation.is_free or demand_changes.may_take(draft, gains, minimum=True)):
            reservations.unreserve(state, [reservation])
            break
        trainer_reservations.append(reservation)
        state.quotas.reserve(job)
    return trainer_reservations


def _quota_victims(state: CycleState, draft: JobDraft, missing: int) -> list[tuple[JobDraft, Pod]]:
    """Surplus to release so that the quotas allow `missing` more trainers, richest jobs first.

    Empty where nothing must be released, where there is no room for the trainers, and where all
    surplus is not enough. All surplus of the job itself may be released, as each trainer is replaced
    by a guaranteed one.
    """
    victims: list[tuple[JobDraft, Pod]] = []
    job, server_count = draft.job, draft.servers_to_start
    if state.quotas.allow(job, missing, server_count) or _slots(state, draft) < missing:
        return victims
    candidates = {s.key: s.surplus if s.job is job else s.spare for s in state.drafts}
    if not _all_relieve(state, draft, missing, candidates):
        return victims
    while not state.quotas.allow(job, missing, server_count):
        donors = [
            candidate
            for candidate in state.drafts
            if candidates[candidate.key]
            and state.quotas.relieves(job, missing, candidate.job, server_count)
        ]
        if not donors:  # what is left of surplus is of queues that do not borrow
            break
        victim_counts = Counter(donor.key for donor, _ in victims)
        donor = max(donors, key=lambda s: (state.measure(s, s.count - victim_counts[s.key]), s.key))
        victims.append((donor, candidates[donor.key].pop(0)))
        state.quotas.release(donor.job, [victims[-1][1]])
    is_enough = state.quotas.allow(job, missing, server_count)
    for donor, pod in victims:
        state.quotas.restore(donor.job, [pod])
    others = sum(donor is not draft for donor, _ in victims)
    is_given = is_enough and demand_changes.may_take(draft, others, minimum=True)
    return victims if is_given else []


def _all_relieve(
    state: CycleState, draft: JobDraft, missing: int, candidates: Mapping[str, Sequence[Pod]]
) -> bool:
    """Whether the quotas would allow `missing` trainers if all candidates were released.

    Choosing victims one by one takes time for each; where all are too few, that is saved.
    """
    job, server_count = draft.job, draft.servers_to_start
    donors = [
        (donor.job, candidates[donor.key])
        for donor in state.drafts
        if candidates[donor.key] and state.quotas.relieves(job, missing, donor.job, server_count)
    ]
    for giver, pods in donors:
        state.quotas.release(giver, pods)
    enough = state.quotas.allow(job, missing, server_count)
    for giver, pods in donors:
        state.quotas.restore(giver, pods)
    return enough


def _explain(state: CycleState, draft: JobDraft, missing: int, *, served: bool) -> None:
    job, needs = draft.job, draft.requests(first=True)
    server_count = 0 if served else draft.servers_to_start
    if not state.quotas.allow(job, missing if server_count else 1, server_count):
        lack = state.quotas.lack(job, missing, server_count)
        draft.set_reason(Reason.QUOTA_REACHED, {**lack, "missing": missing})
        return
    if job.servers is not None and server_count:
        server_figures: dict[str, Figure] = {"servers": server_count, "needs": job.servers.requests}
        draft.set_reason(Reason.WAITING_FOR_ROOM, server_figures)
        return
    constraints = state.cluster.jobs[draft.key].constraints  # avoided nodes were tried, too
    pools = state.policy.node_pools
    slots = state.capacity.slots(needs, constraints, pooled=True)
    if slots or state.cluster.fits_empty_node(needs, constraints, pools):
        draft.set_reason(Reason.WAITING_FOR_ROOM, {"missing": missing, "needs": needs})
        return
    names = state.capacity.open_nodes(constraints, pooled=True)
    figures: dict[str, Figure] = {"needs": needs, "nodes": len(names)}
    if names:
        largest, needed = state.cluster.largest(constraints, pools), sorted(needs.keys() - {"pods"})
        figures["largest"] = {name: largest.get(name, 0) for name in needed}
    draft.set_reason(Reason.FITS_NO_NODE, figures)
