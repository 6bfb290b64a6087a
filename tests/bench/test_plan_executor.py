"""A plan that is carried out leaves a cluster that nothing has to be done to."""

from bench.clusters import NOW_S, cluster, policy
from bench.plan_executor import PlanExecutor
from policy.cluster.cluster_state import ClusterState
from policy.cluster.snapshot import Phase
from policy.planning.planner import plan


def test_a_small_cluster_comes_to_rest() -> None:
    """In the end its plan is empty, and no pod is terminating."""
    state = ClusterState.of(cluster(40))
    rounds = PlanExecutor(state).settle(policy(), 20)
    assert rounds < 20
    assert plan(state, policy(), NOW_S).empty
    assert all(pod.phase is Phase.RUNNING for pod in state.pods.values() if pod.node)


def test_a_cluster_that_gets_no_time_to_settle_says_so() -> None:
    """The number of rounds asked for comes back."""
    assert PlanExecutor(ClusterState.of(cluster(40))).settle(policy(), 0) == 0
