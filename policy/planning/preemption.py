"""kube-scheduler's DefaultPreemption: its proposals, and the capacity of nominated pods."""

from collections.abc import Iterator

from policy.cluster import amounts
from policy.cluster.cluster_state import ClusterState
from policy.cluster.snapshot import Pod
from policy.document.model import NodePool
from policy.names import Role, Tier
from policy.planning.victims import Candidate


def promised(pod: Pod, state: ClusterState) -> dict[str, dict[str, int]]:
    """Returns node -> requests of the pods nominated there whose capacity `pod` must not use."""
    reserved: dict[str, dict[str, int]] = {}
    for other in state.waiting.values():
        if other.nominated and other.uid != pod.uid and other.priority >= pod.priority:
            amounts.add(reserved.setdefault(other.nominated, {}), other.requests)
    return reserved


def waits_for_victims(pod: Pod, state: ClusterState) -> bool:
    """Returns whether victims are still being deleted on the node for which a pod is nominated."""
    return any(bound_pod.deleting for bound_pod in state.bound.get(pod.nominated, {}).values())


def propose(pod: Pod, state: ClusterState, pools: tuple[NodePool, ...]) -> Iterator[Candidate]:
    """Yields a candidate for each node where preempting pods of lower priority frees enough."""
    reserved = promised(pod, state)
    pools = pools if pod.role is Role.TRAINER else ()
    for name in sorted(state.open_nodes(pod.constraints, pools)):
        free = state.free(name)
        amounts.subtract(free, reserved.get(name, {}))
        victims = _victims(pod, state, name, free)
        if victims:
            violations = sum(victim.tier is Tier.GUARANTEED for victim in victims)
            yield Candidate(name, tuple(victim.uid for victim in victims), violations)


def _victims(pod: Pod, state: ClusterState, name: str, free: dict[str, int]) -> list[Pod]:
    """Returns the victims: all pods of lower priority, minus the most important ones that can stay."""
    lower = [
        victim for victim in state.bound.get(name, {}).values() if victim.priority < pod.priority
    ]
    for victim in lower:
        amounts.add(free, victim.requests)
    if not amounts.within(pod.requests, free):
        return []
    victims = []
    for victim in sorted(
        lower, key=lambda victim: (-victim.priority, victim.started_s, victim.uid)
    ):
        amounts.subtract(free, victim.requests)
        if not amounts.within(pod.requests, free):
            amounts.add(free, victim.requests)
            victims.append(victim)
    return victims
