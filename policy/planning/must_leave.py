"""The pods that must leave so that a waiting job fits. Pure.

Only capacity is considered; other waiting jobs are ignored.
"""

from collections.abc import Container, Iterable
from dataclasses import dataclass

from policy.cluster import amounts
from policy.cluster.cluster_state import ClusterState
from policy.cluster.live_trainers import is_surplus
from policy.cluster.slots import Slots
from policy.cluster.snapshot import Job, Pod, Resources
from policy.document.model import Policy

_MAX_NAMED = 5


@dataclass(frozen=True, slots=True)
class MustLeave:
    """The capacity that a job lacks, and the jobs that would free it if they ended."""

    trainers: int
    """Number of trainers without capacity; 0 if the job waits for something else."""
    any_of: tuple[str, ...] = ()
    """Keys of at most 5 running jobs that would each free enough alone; the longest-running comes first."""
    all_of: tuple[str, ...] = ()
    """Keys of the jobs that would have to end together, if no single job would free enough."""

    @property
    def services(self) -> bool:
        """Whether only services, or pods that belong to no job, could free the capacity."""
        return self.trainers > 0 and not (self.any_of or self.all_of)


def must_leave(cluster: ClusterState, policy: Policy, job: Job, missing: int) -> MustLeave:
    """Returns the pods that must leave so that `missing` more trainers of a job fit.

    Other jobs' surplus and leaving pods count as gone: the plan takes their capacity anyway.
    """
    slots = cluster.slots(job.requests, job.constraints, policy.node_pools)
    lacking = missing - slots.total
    if lacking <= 0:
        return MustLeave(0)
    usable = frozenset(cluster.open_nodes(job.constraints, policy.node_pools))
    gains = []
    for other in cluster.jobs.values():
        pods = [*cluster.trainers(other), *cluster.servers_of(other)]
        if other.key != job.key and pods:
            started_s = min(pod.started_s for pod in pods)
            gains.append((started_s, other.key, _gain(cluster, slots, pods, usable)))
    gains.sort()
    enough = [key for _, key, gain in gains if gain >= lacking]
    if enough:
        return MustLeave(lacking, any_of=tuple(enough[:_MAX_NAMED]))
    return MustLeave(lacking, all_of=_together(gains, lacking))


def _together(gains: Iterable[tuple[float, str, int]], lacking: int) -> tuple[str, ...]:
    """Returns the longest-running jobs that free enough together; empty if even all jobs free too little."""
    keys: list[str] = []
    for _, key, gain in gains:
        if gain and lacking > 0:
            keys.append(key)
            lacking -= gain
    return tuple(keys) if lacking <= 0 else ()


def _gain(cluster: ClusterState, slots: Slots, pods: Iterable[Pod], usable: Container[str]) -> int:
    """Returns how many more pods of a shape fit on the usable nodes once `pods` have ended."""
    freed: dict[str, dict[str, int]] = {}
    for pod in pods:
        if pod.node in usable and not is_surplus(pod):
            amounts.add(freed.setdefault(pod.node, {}), pod.requests)

    def room(name: str) -> Resources:
        free = cluster.free(name)
        for freeing in (cluster.releasing, cluster.surplus, freed):
            amounts.add(free, freeing.get(name, {}))
        return free

    return slots.total_with(freed, room) - slots.total
