"""Which training pods give way, in the plan and for kube-scheduler's preemption alike.

Order: surplus before guaranteed before support (a master never goes while trainers can; nor does
the trainer that carries one while others of its tier can), then
the jobs that hold most for their weight, then the least uncommitted work, then the youngest.
For a pending service, the node where the fewest guaranteed trainers and then the fewest trainers
at all die for each service that then fits; pods that are leaving already cost nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

from policy import amounts
from policy.crew import tier_rank
from policy.index import Index, job_key
from policy.names import Tier
from policy.snapshot import Pod, Resources


@dataclass(frozen=True, slots=True)
class Candidate:
    """What kube-scheduler found for one node (extender/v1 `MetaVictims`)."""

    node: str
    uids: tuple[str, ...]
    violations: int = 0
    """Budgets that this choice would violate (`NumPDBViolations`)."""


@dataclass(frozen=True, slots=True)
class Promise:
    """Room on a node that a pod was given and has not taken yet.

    Bridges the moment between an answer to kube-scheduler and the watch events about it.
    """

    uid: str
    node: str
    requests: Resources
    priority: int
    victims: frozenset[str]


class Shares:
    """Job key -> what it holds for its weight, without the trainers that are leaving."""

    def __init__(
        self, index: Index, weights: Mapping[str, int], leaving: frozenset[str] = frozenset()
    ) -> None:
        self._index = index
        self._weights = weights
        self._leaving = leaving
        self._known: dict[str, float] = {}

    def of(self, pod: Pod) -> float:
        """The share of the job that a pod belongs to; a pod without a job is its own."""
        key = job_key(pod)
        job = self._index.jobs.get(key)
        if job is None:
            return amounts.dominant(pod.requests, self._index.allocatable)
        if key not in self._known:
            live = self._index.trainers(job)
            count = len(live)
            if self._leaving:
                count -= sum(1 for p in live if p.uid in self._leaving)
            share = self._index.share(job, count, self._weights)
            if self._index.serving(job):
                share += self._index.servers_share(job, self._weights)
            self._known[key] = share
        return self._known[key]


def choose(
    preemptor: Pod,
    candidates: Iterable[Candidate],
    index: Index,
    promises: Iterable[Promise] = (),
    weights: Mapping[str, int] | None = None,
) -> Candidate | None:
    """The one candidate, with the victims on it, that costs training least.

    Args:
        preemptor: The pod that needs room; only pods of lower priority are taken.
        candidates: kube-scheduler's proposals, one a node, each with at least one victim.
        index: The cluster.
        promises: Room given away that the index may not show yet.
        weights: Queue -> weight.

    Returns:
        None where no candidate has a victim. A node that the index does not know keeps the
        victims it came with, but is taken only where nothing better is.
    """
    search = _Search(
        preemptor, index, tuple(p for p in promises if p.uid != preemptor.uid), weights
    )
    rated = [search.rate(candidate) for candidate in candidates if candidate.uids]
    return min(rated, key=lambda pair: pair[0])[1] if rated else None


LOOK_AHEAD = 3
"""Further victims on a node that are looked at; a fourth rarely makes a set fit better."""

_Rank = tuple[int, int, int, float, float, float, float, str]
"""Unknown to us, support pods lost, guaranteed trainers lost, trainers lost for each service that
then fits, how far above the others the jobs are, uncommitted work, age, node."""


class _Search:
    """What stays the same while candidates for one preemptor are rated."""

    def __init__(
        self,
        preemptor: Pod,
        index: Index,
        promises: tuple[Promise, ...],
        weights: Mapping[str, int] | None,
    ) -> None:
        self._preemptor = preemptor
        self._index = index
        self._leaving = frozenset(uid for promise in promises for uid in promise.victims)
        self._shares = Shares(index, weights or {}, self._leaving)
        self._alike = 1
        self._before: dict[str, list[Pod]] = {}
        """Node -> pods that were nominated there and come before the preemptor."""
        for pod in index.waiting.values():
            if pod.uid == preemptor.uid:
                continue
            if not pod.nominated:
                self._alike += _alike(pod, preemptor)
            elif pod.priority >= preemptor.priority:
                self._before.setdefault(pod.nominated, []).append(pod)
        self._promised: dict[str, list[Promise]] = {}
        for promise in promises:
            if promise.priority >= preemptor.priority:
                self._promised.setdefault(promise.node, []).append(promise)

    def rate(self, candidate: Candidate) -> tuple[_Rank, Candidate]:
        """A candidate with our victims on it, and its rank; the lowest rank is the best."""
        here = self._index.bound.get(candidate.node, {})
        if candidate.node not in self._index.nodes or any(u not in here for u in candidate.uids):
            return (1, 0, 0, float(len(candidate.uids)), 0.0, 0.0, 0.0, candidate.node), candidate
        room = self._room_after_leavers(candidate.node)
        gone = [pod for pod in here.values() if pod.deleting or pod.uid in self._leaving]
        takeable = [
            pod
            for pod in here.values()
            if pod.is_training
            and pod.priority < self._preemptor.priority
            and not pod.deleting
            and pod.uid not in self._leaving
        ]
        taken = _take(self._preemptor, room, takeable, self._shares)
        if taken is None or not (taken or gone):
            kept = [here[uid] for uid in candidate.uids]
            return (1, *_damage(kept), float(len(kept)), 0.0, 0.0, 0.0, candidate.node), candidate
        each = self._lost_for_each(room, taken, takeable)
        most = max((self._shares.of(pod) for pod in taken), default=0.0)
        uids = tuple(sorted(pod.uid for pod in (taken or gone)))
        chosen = Candidate(candidate.node, uids, _violations(candidate, taken))
        lost_s = sum(pod.uncommitted_s for pod in taken)
        oldest = -min((pod.started_s for pod in taken), default=0.0)
        rank = (0, *_damage(taken), each, -most, lost_s, oldest, candidate.node)
        return rank, chosen

    def _lost_for_each(
        self, room: Mapping[str, int], taken: list[Pod], takeable: Iterable[Pod]
    ) -> float:
        """Trainers lost for each pod like the preemptor, if such pods go on coming to the node.

        A node of 17 with three trainers of 5 takes one pod of 4 for the first that goes, but
        three for two; more than what is needed now is only counted, not taken.
        """
        if not taken:
            return 0.0
        after = dict(room)
        for pod in taken:
            amounts.add(after, pod.requests)
        lost = len(taken)
        best = lost / self._fits(after)
        rest = (pod for pod in takeable if tier_rank(pod) == 0 and pod not in taken)
        for pod in islice(rest, LOOK_AHEAD):
            amounts.add(after, pod.requests)
            lost += 1
            best = min(best, lost / self._fits(after))
        return best

    def _fits(self, room: Mapping[str, int]) -> int:
        return max(1, min(self._alike, amounts.times(self._preemptor.requests, room)))

    def _room_after_leavers(self, node: str) -> dict[str, int]:
        """Free on a node once its leavers are gone and those before us have moved in."""
        bound = self._index.bound.get(node, {})
        room = self._index.free(node)
        for pod in bound.values():
            if pod.deleting or pod.uid in self._leaving:
                amounts.add(room, pod.requests)
        nominated = self._before.get(node, ())
        for pod in nominated:
            amounts.subtract(room, pod.requests)
        for promise in self._promised.get(node, ()):
            if promise.uid not in bound and all(promise.uid != pod.uid for pod in nominated):
                amounts.subtract(room, promise.requests)
        return room


def _take(
    preemptor: Pod, room: Mapping[str, int], takeable: Iterable[Pod], shares: Shares
) -> list[Pod] | None:
    """The cheapest of `takeable` whose going makes room, or None where not even all do."""
    free = dict(room)
    taken: list[Pod] = []
    for pod in sorted(
        takeable,
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
        taken.append(pod)
    if not amounts.within(preemptor.requests, free):
        return None
    for pod in reversed(tuple(taken)):
        amounts.subtract(free, pod.requests)
        if amounts.within(preemptor.requests, free):
            taken.remove(pod)
        else:
            amounts.add(free, pod.requests)
    return taken


def _alike(pod: Pod, preemptor: Pod) -> bool:
    """Whether a waiting pod will ask for the same as soon as its turn comes."""
    return (
        pod.role is preemptor.role
        and pod.priority >= preemptor.priority
        and pod.requests == preemptor.requests
    )


def _damage(pods: Iterable[Pod]) -> tuple[int, int]:
    """(support or foreign pods lost, guaranteed trainers lost; with a master one counts twice)."""
    found = list(pods)
    ranks = [tier_rank(pod) for pod in found]
    masters = sum(1 for pod in found if pod.master)
    return sum(1 for rank in ranks if rank > 1), ranks.count(1) + masters


def _violations(candidate: Candidate, taken: Iterable[Pod]) -> int:
    """Budgets violated by our choice: a job's budget covers its guaranteed trainers."""
    uids = {pod.uid for pod in taken}
    if uids <= set(candidate.uids):
        return min(candidate.violations, len(uids))
    return sum(1 for pod in taken if pod.tier is Tier.GUARANTEED)
