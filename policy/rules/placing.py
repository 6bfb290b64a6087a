"""Places for pods that outrank surplus: where each goes, and what must leave for it."""

from collections.abc import Iterable
from typing import NamedTuple

from policy.snapshot import Constraints, Resources
from policy.work import Work


class Place(NamedTuple):
    """Where one pod goes."""

    node: str
    requests: Resources
    preempted: Resources
    """What kube-scheduler must take from others there."""


def find(
    work: Work, requests: Resources, constraints: Constraints, *, pooled: bool
) -> Place | None:
    """A place for one pod, whose room is taken; None where no node has any, even without surplus."""
    node, must_leave = work.room.place(requests, constraints, pooled=pooled)
    if not node:
        return None
    place = Place(node, requests, _short(work, requests, node) if must_leave else {})
    work.room.take(node, requests)
    work.load.take(requests)
    return place


def give_back(work: Work, places: Iterable[Place]) -> None:
    """Undoes `find`."""
    for place in places:
        work.room.give(place.node, place.requests)
        work.load.give(place.requests)


def settle(work: Work, places: Iterable[Place]) -> None:
    """Counts what leaves for them, once it is sure that they are taken."""
    for place in places:
        work.load.leave(place.preempted)


def _short(work: Work, requests: Resources, node: str) -> Resources:
    """What kube-scheduler must preempt on a node for one pod."""
    room = work.room.later(node)
    return {
        name: wanted - min(wanted, max(0, room.get(name, 0))) for name, wanted in requests.items()
    }
