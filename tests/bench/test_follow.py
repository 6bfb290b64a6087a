"""A plan that is carried out leaves a cluster that nothing has to be done to."""

from bench.clusters import NOW_S, cluster, policy
from bench.follow import Follower
from policy.elasticity import plan
from policy.index import Index
from policy.snapshot import Phase


def test_a_small_cluster_comes_to_rest() -> None:
    """Its plan is empty in the end, and nobody is leaving."""
    index = Index.of(cluster(40))
    rounds = Follower(index).settle(policy(), 20)
    assert rounds < 20
    assert plan(index, policy(), NOW_S).empty
    assert all(pod.phase is Phase.RUNNING for pod in index.pods.values() if pod.node)


def test_a_cluster_that_gets_no_time_to_settle_says_so() -> None:
    """The number of rounds asked for comes back."""
    assert Follower(Index.of(cluster(40))).settle(policy(), 0) == 0
