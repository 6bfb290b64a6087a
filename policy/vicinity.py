"""How near a pod that has no room is to having some: figures for decision records."""

from collections.abc import Collection, Mapping

from policy.decisions import Figures
from policy.snapshot import Resources


def nearest(
    requests: Resources, nodes: Collection[str], available: Mapping[str, Resources]
) -> Figures:
    """How many nodes there are, and what is free on the one that lacks least.

    O(nodes). The node that lacks least is the one where the resource that is shortest, as a part
    of what the pod wants, is least short.

    Args:
        requests: Of the pod.
        nodes: Those it may use.
        available: Node -> what is free there, by the scheduler's count; may be negative.
    """
    if not nodes:
        return {"nodes": 0}
    wanted = [(name, amount) for name, amount in sorted(requests.items()) if amount > 0]
    _, best = max(
        (min((available[n].get(r, 0) / amount for r, amount in wanted), default=0.0), n)
        for n in nodes
    )
    free = {name: max(0, available[best].get(name, 0)) for name, _ in wanted}
    return {"nodes": len(nodes), "nearest": best, "free": free}
