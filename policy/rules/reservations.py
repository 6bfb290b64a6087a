"""Reserves capacity for pods that outrank surplus, and counts what they preempt."""

from collections.abc import Iterable
from typing import NamedTuple

from policy.cycle_state import CycleState
from policy.snapshot import Constraints, Resources


class Reservation(NamedTuple):
    """Capacity on one node, reserved for one pod."""

    node: str
    requests: Resources
    preempted: Resources
    """Amounts that kube-scheduler must preempt there."""


def reserve(
    state: CycleState, requests: Resources, constraints: Constraints, *, pooled: bool
) -> Reservation | None:
    """Reserves capacity for one pod; None where it fits on no node, even without surplus."""
    node, must_leave = state.capacity.choose_node(requests, constraints, pooled=pooled)
    if not node:
        return None
    reservation = Reservation(
        node, requests, _shortage(state, requests, node) if must_leave else {}
    )
    state.reserve_place(node, requests)
    return reservation


def unreserve(state: CycleState, reservations: Iterable[Reservation]) -> None:
    """Undoes `reserve`."""
    for reservation in reservations:
        state.unreserve_place(reservation.node, reservation.requests)


def confirm(state: CycleState, reservations: Iterable[Reservation]) -> None:
    """Counts the amounts they preempt as leaving, once the reservations are final."""
    for reservation in reservations:
        state.add_leaving_load(reservation.node, reservation.preempted)


def _shortage(state: CycleState, requests: Resources, node: str) -> Resources:
    """Amounts that kube-scheduler must preempt on a node for one pod."""
    free = state.capacity.free_later(node)
    return {
        name: amount - min(amount, max(0, free.get(name, 0))) for name, amount in requests.items()
    }
