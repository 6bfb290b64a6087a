"""kube-scheduler's proposals, as simulations and forecasts make them."""

from dataclasses import replace

from policy.cluster.cluster_state import ClusterState
from policy.cluster.snapshot import Snapshot
from policy.planning import preemption
from tests.support.builders import job, node, service, trainers

_JOB = job("net", 1, 4)


def test_victims_are_the_least_important_that_make_room() -> None:
    """Each node with lower pods enough is one candidate; guaranteed trainers are violations."""
    pods = [*trainers(_JOB, ["n0", "n0", "n0"]), service("old", 10, "n1", priority=200)]
    state = ClusterState.of(Snapshot((node("n0", 15), node("n1", 12)), tuple(pods), (_JOB,)))

    (candidate,) = preemption.propose(service("web", 7, priority=100), state, ())

    assert candidate.node == "n0"
    assert len(candidate.uids) == 2
    assert candidate.violations == 0


def test_what_is_promised_to_a_nominated_pod_is_not_free() -> None:
    """For pods of at most its priority; and it waits while victims leave."""
    nominated = service("first", 5, priority=100, nominated="n0")
    leaving = replace(service("old", 5, "n0"), deleting=True)
    state = ClusterState.of(Snapshot((node("n0", 10),), (nominated, leaving), ()))

    assert preemption.promised(service("second", 5, priority=100), state)["n0"]["cpu"] == 5000
    assert not preemption.promised(service("higher", 5, priority=200), state)
    assert preemption.waits_for_victims(nominated, state)
    assert not list(preemption.propose(service("second", 6, priority=100), state, ()))
