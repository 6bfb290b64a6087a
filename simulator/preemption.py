"""What kube-scheduler's DefaultPreemption proposes, and the room it keeps for nominated pods."""

from collections.abc import Iterator

from policy import amounts
from policy.index import Index
from policy.model import NodePool
from policy.names import Role, Tier
from policy.snapshot import Pod
from policy.victims import Candidate


def promised(pod: Pod, index: Index) -> dict[str, dict[str, int]]:
    """Node -> requests of the pods nominated there that `pod` must leave room for."""
    taken: dict[str, dict[str, int]] = {}
    for other in index.waiting.values():
        if other.nominated and other.uid != pod.uid and other.priority >= pod.priority:
            amounts.add(taken.setdefault(other.nominated, {}), other.requests)
    return taken


def makes_way(pod: Pod, index: Index) -> bool:
    """Whether victims are still leaving the node that a pod was nominated for."""
    return any(other.deleting for other in index.bound.get(pod.nominated, {}).values())


def propose(pod: Pod, index: Index, pools: tuple[NodePool, ...]) -> Iterator[Candidate]:
    """One candidate for each node where taking pods of lower priority away makes room."""
    taken = promised(pod, index)
    pools = pools if pod.role is Role.TRAINER else ()
    for name in sorted(index.open_nodes(pod.constraints, pools)):
        free = index.free(name)
        amounts.subtract(free, taken.get(name, {}))
        victims = _victims(pod, index, name, free)
        if victims:
            violations = sum(victim.tier is Tier.GUARANTEED for victim in victims)
            yield Candidate(name, tuple(victim.uid for victim in victims), violations)


def _victims(pod: Pod, index: Index, name: str, free: dict[str, int]) -> list[Pod]:
    """Takes all of lower priority away, then gives back, the most important first, what fits."""
    lower = [other for other in index.bound.get(name, {}).values() if other.priority < pod.priority]
    for other in lower:
        amounts.add(free, other.requests)
    if not amounts.within(pod.requests, free):
        return []
    victims = []
    for other in sorted(lower, key=lambda other: (-other.priority, other.started_s, other.uid)):
        amounts.subtract(free, other.requests)
        if not amounts.within(pod.requests, free):
            amounts.add(free, other.requests)
            victims.append(other)
    return victims
