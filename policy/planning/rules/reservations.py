"""Reserves capacity for pods that outrank surplus, and counts what they preempt."""

from collections.abc import Iterable
from typing import NamedTuple

from policy.cluster import amounts
from policy.cluster.snapshot import Constraints, Pod, Resources
from policy.decisions import Figure
from policy.planning.cycle_state import CycleState
from policy.planning.free_capacity import NOWHERE, When
from policy.planning.job_draft import JobDraft
from policy.reasons import Reason


class Reservation(NamedTuple):
    """Capacity on one node, reserved for one pod."""

    node: str
    requests: Resources
    preempted: Resources
    """Amounts that kube-scheduler must preempt there."""
    is_free: bool
    """Whether it is free now. Pods that leave have it else, for which kube-scheduler may preempt others."""


def reserve(
    state: CycleState,
    requests: Resources,
    constraints: Constraints,
    closed: frozenset[str] = NOWHERE,
    *,
    pooled: bool,
) -> Reservation | None:
    """Reserves capacity for one pod; None where it fits on no node, even without surplus."""
    node, must_leave = state.capacity.choose_node(requests, constraints, closed, pooled=pooled)
    if not node:
        return None
    preempted = _shortage(state, requests, node) if must_leave else {}
    is_free = amounts.within(requests, state.capacity.free_now(node))
    reservation = Reservation(node, requests, preempted, is_free)
    state.reserve_place(node, requests)
    return reservation


def count_gains(reservations: Iterable[Reservation]) -> int:
    """How many of them may end trainers of other jobs."""
    return sum(not reservation.is_free for reservation in reservations)


def unreserve(state: CycleState, reservations: Iterable[Reservation]) -> None:
    """Undoes `reserve`."""
    for reservation in reservations:
        state.unreserve_place(reservation.node, reservation.requests)


def confirm(state: CycleState, draft: JobDraft, reservations: Iterable[Reservation]) -> None:
    """Counts the amounts they preempt as leaving, once a job's reservations are final."""
    for reservation in reservations:
        preempted = dict(reservation.preempted)
        if preempted:
            amounts.subtract(preempted, release_excess(state, draft, reservation.node))
        state.add_leaving_load(
            reservation.node, {name: amount for name, amount in preempted.items() if amount > 0}
        )


def release_excess(state: CycleState, draft: JobDraft, node: str) -> Resources:
    """Releases trainers for what is reserved on a node and kube-scheduler would not preempt.

    It preempts surplus for a trainer, but no pod of the same priority: guaranteed trainers that other
    jobs have above their minimum leave by this plan. As few of them as are needed.

    Args:
        state: The plan so far.
        draft: The job for which capacity was reserved.
        node: The node.

    Returns:
        The released amounts.
    """
    released: dict[str, int] = {}
    excess = _excess_on(state, node)
    free = dict(state.capacity.free_at(node, When.RECLAIMED))
    for _, pod in excess:
        amounts.subtract(free, pod.requests)
    for donor, pod in excess:
        if all(amount >= 0 for amount in free.values()):
            break
        figures: dict[str, Figure] = {"job": draft.key, "min": donor.job.min_trainers}
        state.release(donor, pod, Reason.ABOVE_MIN, figures)
        amounts.add(free, pod.requests)
        amounts.add(released, pod.requests)
    return released


def _excess_on(state: CycleState, node: str) -> list[tuple[JobDraft, Pod]]:
    pairs = [
        (draft, pod)
        for draft in state.drafts
        if draft.excess
        for pod in draft.surplus
        if pod.uid in draft.excess and pod.node == node
    ]
    return sorted(pairs, key=lambda pair: -state.measure(pair[0], pair[0].count))


def _shortage(state: CycleState, requests: Resources, node: str) -> Resources:
    """Amounts that kube-scheduler must preempt on a node for one pod."""
    free = state.capacity.free_later(node)
    return {
        name: amount - min(amount, max(0, free.get(name, 0))) for name, amount in requests.items()
    }
