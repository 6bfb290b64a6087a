"""Choices of victims as tests write them."""

from policy.cluster.cluster_state import ClusterState
from policy.cluster.snapshot import Pod
from policy.planning.victims import Candidate, Promise, choose
from tests.support.builders import job

A, B = job("a", 1, 10), job("b", 1, 10)


def all_training(index_: ClusterState, *names: str) -> list[Candidate]:
    """A proposal for each node that takes every training pod there."""
    return [
        Candidate(name, tuple(uid for uid, p in index_.bound[name].items() if p.is_training))
        for name in names
    ]


def chosen(
    preemptor: Pod, cluster: ClusterState, *names: str, promises: tuple[Promise, ...] = ()
) -> str:
    """`node: victims` of the choice."""
    choice = choose(preemptor, all_training(cluster, *names), cluster, promises)
    assert choice is not None
    return f"{choice.node}: {' '.join(choice.uids)}"
