"""Carries a plan out on an index, as reconciler, scheduler and kubelets would in some seconds."""

from dataclasses import replace
from itertools import count

from bench.clusters import NOW_S, trainer
from policy import amounts
from policy.elasticity import plan
from policy.index import Index
from policy.model import Policy
from policy.names import Tier
from policy.planning import History, Plan
from policy.snapshot import Job, Phase, Pod

_FIRST_NUMBER = 10_000
_LONG_AGO_S = NOW_S - 3_600


class Follower:
    """Does what plans say, and gives waiting pods a node where there is one."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._numbers = count(_FIRST_NUMBER)
        self._history = History()

    def plan(self, policy: Policy) -> Plan:
        """What is to be done now, remembering what plans remember."""
        made = plan(self._index, policy, NOW_S, self._history)
        self._history = History(futile=made.futile)
        return made

    def settle(self, policy: Policy, rounds: int) -> int:
        """Plans and follows until a plan is empty.

        Returns:
            How many plans were not; `rounds` if it did not come to rest in as many.
        """
        for done in range(rounds):
            made = self.plan(policy)
            if made.empty and not made.postponed:
                return done
            self.follow(made)
        return rounds

    def follow(self, made: Plan) -> None:
        """Those that leave are gone at once, those that are made or wait run where they fit."""
        index = self._index
        for uid in [*index.leaving, *(release.uid for release in made.releases)]:
            index.drop_pod(uid)
        waiting = sorted(index.waiting.values(), key=lambda pod: (-pod.priority, pod.uid))
        for pod in waiting:
            if not pod.gated:
                self._bind(pod)
        for create in made.creates:
            for _ in range(create.count):
                self._bind(self.heir(index.jobs[create.job], create.tier))

    def heir(self, job: Job, tier: Tier) -> Pod:
        """A new trainer of a job; it waits for a node, and nobody else knows of it yet."""
        return trainer(job, next(self._numbers), tier=tier, created_s=NOW_S)

    def _bind(self, pod: Pod) -> None:
        """As kube-scheduler with our extender: where it spoils least for trainers."""
        packing, available = self._index.packing, self._index.available
        costs = [
            (packing.cost(pod.requests, available[name]), name)
            for name in self._index.open_nodes(pod.constraints)
            if amounts.within(pod.requests, available[name])
        ]
        self._index.put_pod(bound(pod, min(costs)[1]) if costs else pod)


def bound(pod: Pod, node: str) -> Pod:
    """The pod at work on `node`, since long enough to be moved again."""
    return replace(pod, node=node, phase=Phase.RUNNING, ready=True, started_s=_LONG_AGO_S)
