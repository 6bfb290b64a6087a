"""Chooses the training pods to preempt, for the plan and for kube-scheduler's preemption.

Order: surplus before guaranteed before support (a master never before a trainer, and its host
last in its tier), then the jobs with the largest weighted share, then the least uncommitted work,
then the youngest. For a pending service: the node where the fewest guaranteed trainers, and then
the fewest trainers in all, end for each service that then fits; leaving pods cost nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

from policy import amounts
from policy.cluster_state import ClusterState, job_key
from policy.live_trainers import tier_rank
from policy.names import Tier
from policy.snapshot import Pod, Resources


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node with the victims proposed there (extender/v1 `MetaVictims`)."""

    node: str
    uids: tuple[str, ...]
    violations: int = 0
    """Number of disruption budget violations (`NumPDBViolations`)."""


@dataclass(frozen=True, slots=True)
class Promise:
    """Capacity of a node that was promised to a pod which is not bound there yet.

    Covers the time between an answer to kube-scheduler and the watch events that follow from it.
    """

    uid: str
    node: str
    requests: Resources
    priority: int
    victims: frozenset[str]


class Shares:
    """The weighted shares of jobs, without leaving trainers; cached by job key."""

    def __init__(
        self,
        cluster: ClusterState,
        weights: Mapping[str, int],
        leaving: frozenset[str] = frozenset(),
    ) -> None:
        self._cluster = cluster
        self._weights = weights
        self._leaving = leaving
        self._by_job: dict[str, float] = {}

    def of(self, pod: Pod) -> float:
        """The share of a pod's job; a pod without a job has its own dominant share."""
        key = job_key(pod)
        job = self._cluster.jobs.get(key)
        if job is None:
            return amounts.dominant(pod.requests, self._cluster.allocatable)
        if key not in self._by_job:
            live = self._cluster.trainers(job)
            count = len(live)
            if self._leaving:
                count -= sum(1 for p in live if p.uid in self._leaving)
            share = self._cluster.share(job, count, self._weights)
            if self._cluster.server_count(job):
                share += self._cluster.servers_share(job, self._weights)
            self._by_job[key] = share
        return self._by_job[key]


def choose(
    preemptor: Pod,
    candidates: Iterable[Candidate],
    cluster: ClusterState,
    promises: Iterable[Promise] = (),
    weights: Mapping[str, int] | None = None,
) -> Candidate | None:
    """The candidate node, with victims of our choice, that costs training least.

    Args:
        preemptor: The pod that needs capacity; only pods of lower priority are preempted.
        candidates: kube-scheduler's proposals, one for each node, each with at least one victim.
        cluster: The cluster.
        promises: Capacity promised to other pods that `cluster` may not show yet.
        weights: Queue -> weight.

    Returns:
        None where no candidate has a victim. A node that `cluster` lacks keeps the proposed
        victims, and is chosen only where there is no other.
    """
    search = _Search(
        preemptor, cluster, tuple(p for p in promises if p.uid != preemptor.uid), weights
    )
    rated = [search.rate(candidate) for candidate in candidates if candidate.uids]
    return min(rated, key=lambda pair: pair[0])[1] if rated else None


LOOK_AHEAD = 3
"""Further victims of a node that are examined; a fourth rarely makes a set fit better."""

_Rank = tuple[int, int, int, float, float, float, float, str]
"""Unknown node or pod, support pods lost, guaranteed trainers lost, trainers lost for each service
that then fits, largest share of a victim's job (negated), uncommitted work, age, node."""


class _Search:
    """A search for the best candidate for one preemptor."""

    def __init__(
        self,
        preemptor: Pod,
        cluster: ClusterState,
        promises: tuple[Promise, ...],
        weights: Mapping[str, int] | None,
    ) -> None:
        self._preemptor = preemptor
        self._cluster = cluster
        self._leaving = frozenset(uid for promise in promises for uid in promise.victims)
        self._shares = Shares(cluster, weights or {}, self._leaving)
        self._equal_pods = 1
        self._before: dict[str, list[Pod]] = {}
        """Node -> nominated pods of at least the preemptor's priority."""
        for pod in cluster.waiting.values():
            if pod.uid == preemptor.uid:
                continue
            if not pod.nominated:
                self._equal_pods += _same_request(pod, preemptor)
            elif pod.priority >= preemptor.priority:
                self._before.setdefault(pod.nominated, []).append(pod)
        self._promised: dict[str, list[Promise]] = {}
        for promise in promises:
            if promise.priority >= preemptor.priority:
                self._promised.setdefault(promise.node, []).append(promise)

    def rate(self, candidate: Candidate) -> tuple[_Rank, Candidate]:
        """The rank of a candidate, lowest first, and the candidate with victims of our choice."""
        bound = self._cluster.bound.get(candidate.node, {})
        if candidate.node not in self._cluster.nodes or any(u not in bound for u in candidate.uids):
            return (1, 0, 0, float(len(candidate.uids)), 0.0, 0.0, 0.0, candidate.node), candidate
        free = self._free_after_leaving(candidate.node)
        leaving = [pod for pod in bound.values() if pod.deleting or pod.uid in self._leaving]
        preemptible = [
            pod
            for pod in bound.values()
            if pod.is_training
            and pod.priority < self._preemptor.priority
            and not pod.deleting
            and pod.uid not in self._leaving
        ]
        victims = _choose_victims(self._preemptor, free, preemptible, self._shares)
        if victims is None or not (victims or leaving):
            proposed = [bound[uid] for uid in candidate.uids]
            return (
                1,
                *_damage(proposed),
                float(len(proposed)),
                0.0,
                0.0,
                0.0,
                candidate.node,
            ), candidate
        lost_per_pod = self._lost_per_pod(free, victims, preemptible)
        richest = max((self._shares.of(pod) for pod in victims), default=0.0)
        uids = tuple(sorted(pod.uid for pod in (victims or leaving)))
        choice = Candidate(candidate.node, uids, _violations(candidate, victims))
        lost_s = sum(pod.uncommitted_s for pod in victims)
        oldest = -min((pod.started_s for pod in victims), default=0.0)
        rank = (0, *_damage(victims), lost_per_pod, -richest, lost_s, oldest, candidate.node)
        return rank, choice

    def _lost_per_pod(
        self, free: Mapping[str, int], victims: list[Pod], preemptible: Iterable[Pod]
    ) -> float:
        """Trainers lost for each pod like the preemptor, if such pods keep arriving at the node.

        A node of 17 with three trainers of 5 fits one pod of 4 for the first trainer released, but
        three for two. Victims beyond those needed now are only counted, not chosen.
        """
        if not victims:
            return 0.0
        after = dict(free)
        for pod in victims:
            amounts.add(after, pod.requests)
        lost = len(victims)
        best = lost / self._fits(after)
        further = (pod for pod in preemptible if tier_rank(pod) == 0 and pod not in victims)
        for pod in islice(further, LOOK_AHEAD):
            amounts.add(after, pod.requests)
            lost += 1
            best = min(best, lost / self._fits(after))
        return best

    def _fits(self, free: Mapping[str, int]) -> int:
        return max(1, min(self._equal_pods, amounts.times(self._preemptor.requests, free)))

    def _free_after_leaving(self, node: str) -> dict[str, int]:
        """Free on a node once leaving pods have ended and promised pods have been bound."""
        bound = self._cluster.bound.get(node, {})
        free = self._cluster.free(node)
        for pod in bound.values():
            if pod.deleting or pod.uid in self._leaving:
                amounts.add(free, pod.requests)
        nominated = self._before.get(node, ())
        for pod in nominated:
            amounts.subtract(free, pod.requests)
        for promise in self._promised.get(node, ()):
            if promise.uid not in bound and all(promise.uid != pod.uid for pod in nominated):
                amounts.subtract(free, promise.requests)
        return free


def _choose_victims(
    preemptor: Pod, available: Mapping[str, int], preemptible: Iterable[Pod], shares: Shares
) -> list[Pod] | None:
    """The cheapest of `preemptible` that free enough capacity, or None where not even all do.

    Args:
        preemptor: The pod that needs capacity.
        available: What is free on the node, counting leaving pods as gone.
        preemptible: Pods of the node that may be preempted.
        shares: Shares of their jobs.
    """
    free = dict(available)
    victims: list[Pod] = []
    for pod in sorted(
        preemptible,
        key=lambda pod: (
            tier_rank(pod),
            pod.master,
            -shares.of(pod),
            pod.uncommitted_s,
            -pod.started_s,
            pod.uid,
        ),
    ):
        if amounts.within(preemptor.requests, free):
            break
        amounts.add(free, pod.requests)
        victims.append(pod)
    if not amounts.within(preemptor.requests, free):
        return None
    for pod in reversed(tuple(victims)):
        amounts.subtract(free, pod.requests)
        if amounts.within(preemptor.requests, free):
            victims.remove(pod)
        else:
            amounts.add(free, pod.requests)
    return victims


def _same_request(pod: Pod, preemptor: Pod) -> bool:
    """Whether a waiting pod makes the same request as the preemptor."""
    return (
        pod.role is preemptor.role
        and pod.priority >= preemptor.priority
        and pod.requests == preemptor.requests
    )


def _damage(pods: Iterable[Pod]) -> tuple[int, int]:
    """(support and foreign pods lost, guaranteed trainers lost; a master's host counts twice)."""
    losses = [(tier_rank(pod), pod.master) for pod in pods]
    guaranteed = sum(1 for rank, _ in losses if rank == 1)
    masters = sum(1 for _, master in losses if master)
    return sum(1 for rank, _ in losses if rank > 1), guaranteed + masters


def _violations(candidate: Candidate, victims: Iterable[Pod]) -> int:
    """Disruption budget violations of our choice: budgets cover guaranteed trainers."""
    uids = {pod.uid for pod in victims}
    if uids <= set(candidate.uids):
        return min(candidate.violations, len(uids))
    return sum(1 for pod in victims if pod.tier is Tier.GUARANTEED)
