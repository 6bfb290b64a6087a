"""Executes plans on a cluster state, as reconciler, kube-scheduler and kubelets would."""

from dataclasses import replace
from itertools import count

from bench.clusters import NOW_S, trainer
from policy.cluster import amounts
from policy.cluster.cluster_state import ClusterState
from policy.cluster.snapshot import Job, Phase, Pod
from policy.document.model import Policy
from policy.names import Tier
from policy.planning.plan import History, Plan
from policy.planning.planner import plan

_FIRST_NUMBER = 10_000
_LONG_AGO_S = NOW_S - 3_600


class PlanExecutor:
    """An executor of plans that also binds waiting pods to nodes."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._numbers = count(_FIRST_NUMBER)
        self._history = History()

    def plan(self, policy: Policy) -> Plan:
        """Makes a plan, with the history of earlier plans."""
        new_plan = plan(self._state, policy, NOW_S, self._history)
        self._history = History(failed_moves=new_plan.failed_moves, demands=new_plan.demands)
        return new_plan

    def settle(self, policy: Policy, rounds: int) -> int:
        """Makes and executes plans until one is empty.

        Returns:
            The number of plans that were not empty; at most `rounds`.
        """
        for done in range(rounds):
            new_plan = self.plan(policy)
            if new_plan.empty and not new_plan.deferred:
                return done
            self.execute(new_plan)
        return rounds

    def execute(self, new_plan: Plan) -> None:
        """Removes released and terminating pods; binds waiting and created ones where they fit."""
        state = self._state
        for uid in [*state.leaving, *(release.uid for release in new_plan.releases)]:
            state.drop_pod(uid)
        waiting = sorted(state.waiting.values(), key=lambda pod: (-pod.priority, pod.uid))
        for pod in waiting:
            if not pod.gated:
                self._bind(pod)
        for create in new_plan.creates:
            for _ in range(create.count):
                self._bind(self.replacement(state.jobs[create.job], create.tier))

    def replacement(self, job: Job, tier: Tier) -> Pod:
        """Creates a trainer that waits for a node; it is not yet in the cluster state."""
        return trainer(job, next(self._numbers), tier=tier, created_s=NOW_S)

    def _bind(self, pod: Pod) -> None:
        """Binds a pod as kube-scheduler does with the extender: where the cost is least."""
        packing, available = self._state.packing, self._state.available
        costs = [
            (packing.cost(pod.requests, available[name]), name)
            for name in self._state.open_nodes(pod.constraints)
            if amounts.within(pod.requests, available[name])
        ]
        self._state.put_pod(bound(pod, min(costs)[1]) if costs else pod)


def bound(pod: Pod, node: str) -> Pod:
    """Returns the pod running on `node`, for long enough that it may be moved again."""
    return replace(pod, node=node, phase=Phase.RUNNING, ready=True, started_s=_LONG_AGO_S)
