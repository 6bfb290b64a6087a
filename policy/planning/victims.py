"""Chooses the training pods to preempt, for the plan and for kube-scheduler's preemption.

Victims on a node are chosen in this order: surplus before guaranteed before support (a master never before
a trainer, and its host last in its tier), then pods of the jobs with the largest weighted share, then the
least uncommitted work, then the youngest. A pending service gets the node where the fewest guaranteed
trainers end, and then the fewest trainers in total for each such service that fits afterwards; leaving pods
cost nothing. A candidate is returned to kube-scheduler unchanged if some of its victims are not training
pods.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from math import inf

from policy.cluster import amounts
from policy.cluster.cluster_state import ClusterState, job_key
from policy.cluster.horizon import ALWAYS, Horizon
from policy.cluster.live_trainers import tier_rank
from policy.cluster.snapshot import Pod, Resources
from policy.names import Tier


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

    It covers the time between the answer to kube-scheduler and the watch events that result from it.
    """

    uid: str
    node: str
    requests: Resources
    priority: int
    victims: frozenset[str]


class Shares:
    """The weighted shares of jobs without their leaving trainers, cached by job key."""

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
        """Returns the share of the Job that owns a pod; for a pod without a Job, the pod's dominant share.

        The pod's label alone does not count: a tenant could write a smaller job's name there.
        """
        key = job_key(pod)
        job = self._cluster.jobs.get(key)
        if job is None or job.uid != pod.owner_uid:
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
    *,
    weights: Mapping[str, int] | None = None,
    horizon: Horizon = ALWAYS,
) -> Candidate | None:
    """Returns the candidate that kube-scheduler takes from the result of `narrow`; None if there is none."""
    remaining = narrow(preemptor, candidates, cluster, promises, weights=weights, horizon=horizon)
    return expected(remaining, cluster)


def narrow(
    preemptor: Pod,
    candidates: Iterable[Candidate],
    cluster: ClusterState,
    promises: Iterable[Promise] = (),
    *,
    weights: Mapping[str, int] | None = None,
    horizon: Horizon = ALWAYS,
) -> tuple[Candidate, ...]:
    """Returns the candidates that kube-scheduler may choose from.

    Of the candidates whose victims are all training pods, only the one that costs training least remains,
    with victims chosen by EDL. It never has more budget violations, or a victim of higher priority, than
    kube-scheduler's proposal. All other candidates stay unchanged: EDL does not decide which services end.

    Args:
        preemptor: The pod that needs capacity; only pods of lower priority are preempted.
        candidates: kube-scheduler's proposals: one for each node, with at least one victim.
        cluster: The cluster.
        promises: Capacity promised to other pods that `cluster` may not show yet.
        weights: Queue -> weight.
        horizon: When leaving pods must be due for their capacity to count as free.
    """
    before = tuple(promise for promise in promises if promise.uid != preemptor.uid)
    search = _Search(preemptor, cluster, before, weights, horizon)
    remaining: list[Candidate] = []
    rated: list[tuple[_Rank, Candidate]] = []
    for candidate in candidates:
        proposed = _known(candidate, cluster)
        if proposed and all(pod.is_training for pod in proposed):
            rated.append(search.rate(candidate, proposed))
        elif candidate.uids:
            remaining.append(candidate)
    if rated:
        remaining.append(min(rated, key=lambda pair: pair[0])[1])
    return tuple(remaining)


def expected(candidates: Iterable[Candidate], cluster: ClusterState) -> Candidate | None:
    """Returns the candidate that kube-scheduler takes; None if there are no candidates.

    kube-scheduler's order (k8s.io/kubernetes `pickOneNodeForPreemption`) is: the fewest budget violations,
    the lowest maximum priority of a victim, the lowest sum of priorities, the fewest victims, the latest
    start among the victims with the highest priority. It chooses at random among equal candidates; here
    the node's name decides. Candidates with pods that are missing in `cluster` come last.
    """

    def rank(candidate: Candidate) -> tuple[float, ...]:
        pods = _known(candidate, cluster)
        if not pods:
            return (1, 0, 0, 0, 0, 0)
        top = max(pod.priority for pod in pods)
        starts = [pod.started_s or inf for pod in pods if pod.priority == top]
        total = sum(pod.priority + _PRIORITY_OFFSET for pod in pods)
        return (0, candidate.violations, top, total, len(pods), -min(starts))

    return min(candidates, key=lambda c: (rank(c), c.node), default=None)


LOOK_AHEAD = 3
"""Number of further victims on a node that are examined; a fourth one rarely helps."""
_PRIORITY_OFFSET = 1 << 31
"""kube-scheduler adds it to each priority, so that fewer victims win even if priorities are negative."""
_NONE_LOST = -_PRIORITY_OFFSET - 1
"""Stands for the highest priority if there are no victims: it is below all priorities."""

_Rank = tuple[int, int, int, int, int, float, float, float, float, str]
"""Budget violations, highest priority of a victim, whether training pods free too little (as far as EDL
knows), support pods lost, guaranteed trainers lost, trainers lost for each service that then fits, largest
share of a victim's job (negated), uncommitted work, earliest start (negated), node."""


def _known(candidate: Candidate, cluster: ClusterState) -> list[Pod]:
    """Returns the proposed victims; an empty list if the node or a victim is unknown."""
    bound = cluster.bound.get(candidate.node, {})
    if candidate.node not in cluster.nodes or any(uid not in bound for uid in candidate.uids):
        return []
    return [bound[uid] for uid in candidate.uids]


class _Search:
    """A search for the best candidate for one preemptor."""

    def __init__(
        self,
        preemptor: Pod,
        cluster: ClusterState,
        promises: tuple[Promise, ...],
        weights: Mapping[str, int] | None,
        horizon: Horizon,
    ) -> None:
        self._preemptor = preemptor
        self._cluster = cluster
        self._horizon = horizon
        self._leaving = frozenset(uid for promise in promises for uid in promise.victims)
        self._shares = Shares(cluster, weights or {}, self._leaving)
        self._equal_pods = 1
        self._before: dict[str, list[Pod]] = {}
        """Node -> pods nominated there whose priority is at least the preemptor's."""
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

    def rate(self, candidate: Candidate, proposed: list[Pod]) -> tuple[_Rank, Candidate]:
        """Returns the rank of a candidate, lowest first, and the candidate with victims chosen by EDL.

        Args:
            candidate: kube-scheduler's proposal.
            proposed: Its victims, all of them training pods.
        """
        bound = self._cluster.bound[candidate.node].values()
        preemptible = [
            pod
            for pod in bound
            if pod.is_training
            and pod.priority < self._preemptor.priority
            and not pod.deleting
            and pod.uid not in self._leaving
        ]
        leaving = [
            pod for pod in bound if pod.uid in self._leaving or pod.leaves_within(self._horizon)
        ]
        if not self._preemptor.only_resources:
            # A victim may use the host port, volume or device that the preemptor needs; only
            # kube-scheduler knows which victim.
            free = self._free_after(candidate.node, leaving)
            return self._rank(candidate, proposed, free, preemptible), candidate
        free, victims = self._cheapest(candidate.node, leaving, preemptible)
        nameable = [pod for pod in leaving if pod.is_training]
        if victims is not None and not (victims or nameable):
            # Leaving services would free enough, but kube-scheduler needs a victim to wait for.
            free, victims = self._cheapest(candidate.node, (), preemptible)
        if victims is None or not (victims or nameable):
            return self._rank(candidate, proposed, free, preemptible, doubtful=True), candidate
        choice = _named(candidate, victims or nameable, _violations(candidate, proposed, victims))
        rank = self._rank(choice, victims, free, preemptible)
        if rank[:2] > (candidate.violations, _highest(proposed)):
            return self._rank(candidate, proposed, free, preemptible), candidate
        return rank, choice

    def _cheapest(
        self, node: str, leaving: Iterable[Pod], preemptible: Iterable[Pod]
    ) -> tuple[dict[str, int], list[Pod] | None]:
        """Returns a node's free capacity for the preemptor (see `_free_after`), and the cheapest victims."""
        free = self._free_after(node, leaving)
        return free, _choose_victims(self._preemptor, free, preemptible, self._shares)

    def _rank(
        self,
        candidate: Candidate,
        victims: list[Pod],
        free: Mapping[str, int],
        preemptible: Iterable[Pod],
        *,
        doubtful: bool = False,
    ) -> _Rank:
        return (
            candidate.violations,
            _highest(victims),
            int(doubtful),
            *_damage(victims),
            self._lost_per_pod(free, victims, preemptible),
            -max((self._shares.of(pod) for pod in victims), default=0.0),
            sum(pod.uncommitted_s for pod in victims),
            -min((pod.started_s for pod in victims), default=0.0),
            candidate.node,
        )

    def _lost_per_pod(
        self, free: Mapping[str, int], victims: list[Pod], preemptible: Iterable[Pod]
    ) -> float:
        """Returns the number of trainers lost for each pod like the preemptor, if more such pods arrive.

        For example, a node with 17 CPU and three trainers of 5 CPU fits one pod of 4 CPU once one trainer
        has ended, but three such pods once two have ended. Victims beyond those needed now are only
        counted, not chosen.
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

    def _free_after(self, node: str, leaving: Iterable[Pod]) -> dict[str, int]:
        """Returns a node's free capacity once leaving pods have ended and promised pods are bound."""
        bound = self._cluster.bound[node]
        free = self._cluster.free(node)
        for pod in leaving:
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
    """Returns the cheapest of `preemptible` that free enough capacity; None if even all free too little.

    Args:
        preemptor: The pod that needs capacity.
        available: Free capacity of the node, counting leaving pods as gone.
        preemptible: Pods of the node that may be preempted.
        shares: The shares of the pods' jobs.
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
    """Returns whether a waiting pod has the preemptor's role and requests, and at least its priority."""
    return (
        pod.role is preemptor.role
        and pod.priority >= preemptor.priority
        and pod.requests == preemptor.requests
    )


def _damage(pods: Iterable[Pod]) -> tuple[int, int]:
    """Returns (number of support and other pods lost, number of guaranteed trainers lost).

    A trainer that hosts a master counts once more.
    """
    losses = [(tier_rank(pod), pod.master) for pod in pods]
    guaranteed = sum(1 for rank, _ in losses if rank == 1)
    masters = sum(1 for _, master in losses if master)
    return sum(1 for rank, _ in losses if rank > 1), guaranteed + masters


def _highest(pods: Iterable[Pod]) -> int:
    return max((pod.priority for pod in pods), default=_NONE_LOST)


def _named(candidate: Candidate, victims: Iterable[Pod], violations: int) -> Candidate:
    """Returns the candidate with other victims, the most important first, as kube-scheduler expects."""
    order = sorted(victims, key=lambda pod: (-pod.priority, pod.started_s or inf, pod.uid))
    return Candidate(candidate.node, tuple(pod.uid for pod in order), violations)


def _violations(candidate: Candidate, proposed: Iterable[Pod], victims: Iterable[Pod]) -> int:
    """Returns the disruption budget violations of the chosen victims.

    EDL's budgets do not cover surplus. A job's guaranteed trainers share one budget, and each victim among
    them beyond kube-scheduler's proposal may violate it.
    """
    further = sum((_guaranteed(victims) - _guaranteed(proposed)).values())
    covered = [pod for pod in victims if pod.uid in candidate.uids or pod.tier is Tier.GUARANTEED]
    return min(candidate.violations, len(covered) - further) + further


def _guaranteed(pods: Iterable[Pod]) -> Counter[str]:
    """Returns job -> number of its guaranteed trainers among the pods."""
    return Counter(job_key(pod) for pod in pods if pod.tier is Tier.GUARANTEED)
