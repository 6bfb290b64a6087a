"""Which trainers of a job make room for something that the whole job waits for."""

from policy import amounts
from policy.crew import is_surplus
from policy.room import When
from policy.snapshot import Pod, Resources
from policy.work import Share, Work


def way(
    work: Work, share: Share, requests: Resources, *, pooled: bool, carriers: bool
) -> tuple[str, list[Pod]]:
    """The node where the fewest of the job's trainers make room by leaving, and those trainers.

    Its surplus counts as room already, so only guaranteed ones are left to look at. Room that a
    waiting service would take first is none.

    Args:
        work: The plan so far.
        share: Whose trainers.
        requests: Of what needs the room.
        pooled: Whether it is bound to the node pools.
        carriers: Whether the trainer that carries the master may go, too.
    """
    open_nodes = work.room.open_nodes(share.job.constraints, pooled=pooled)
    here: dict[str, list[Pod]] = {}
    ways: list[tuple[str, list[Pod]]] = []
    for pod in share.live:
        spared = is_surplus(pod) or (pod.master and not carriers)
        if pod.node in open_nodes and not spared:
            leaving = here.setdefault(pod.node, [])
            leaving.append(pod)
            room = dict(work.room.after(pod.node, When.RECLAIMED))
            for other in leaving:
                amounts.add(room, other.requests)
            if amounts.within(requests, room) and not _wanted(work, room):
                ways.append((pod.node, list(leaving)))
    return min(ways, key=lambda way: len(way[1]), default=("", []))


def _wanted(work: Work, room: Resources) -> bool:
    """Whether a service waits that fits there; for simplicity, wherever it may run."""
    return any(not pod.is_training and amounts.within(pod.requests, room) for pod in work.roomless)
