"""Synthetic clusters are what they claim to be."""

from collections import Counter

import pytest

from bench.clusters import LOAD, NOW_S, cluster, policy
from bench.shapes import GPU, GPU_KINDS, GPU_LABEL
from policy.cluster.cluster_state import ClusterState
from policy.cluster.placement import admits
from policy.cluster.snapshot import Snapshot
from policy.names import Tier
from policy.planning.planner import plan

NODES = 200


@pytest.fixture(scope="module")
def snapshot() -> Snapshot:
    """A cluster large enough for every kind of pod."""
    return cluster(NODES)


def test_one_seed_makes_one_cluster_and_another_one_another(snapshot: Snapshot) -> None:
    """Figures of two runs are about the same thing."""
    assert cluster(NODES) == snapshot
    assert cluster(NODES, seed=2) != snapshot


def test_sizes_are_in_the_ratio_of_the_issue(snapshot: Snapshot) -> None:
    """5 000 nodes, 50 000 pods, 1 000 jobs, scaled."""
    assert (len(snapshot.nodes), len(snapshot.pods), len(snapshot.jobs)) == (
        NODES,
        10 * NODES,
        NODES // 5,
    )
    assert len({pod.uid for pod in snapshot.pods}) == len(snapshot.pods)
    assert len({pod.key for pod in snapshot.pods}) == len(snapshot.pods)


def test_no_node_holds_more_than_it_has(snapshot: Snapshot) -> None:
    """For every resource."""
    state = ClusterState.of(snapshot)
    assert all(amount >= 0 for free in state.available.values() for amount in free.values())


def test_every_pod_is_on_a_node_that_admits_it(snapshot: Snapshot) -> None:
    """Taints and selectors hold; only daemons are on cordoned nodes."""
    nodes = {node.name: node for node in snapshot.nodes}
    for pod in snapshot.pods:
        if pod.node and pod.namespace != "kube-system":
            assert admits(nodes[pod.node], pod.constraints) is None


def test_the_cluster_is_nearly_full_and_some_pods_wait_or_leave(snapshot: Snapshot) -> None:
    """A plan has something to do, but not everything."""
    total = sum(node.allocatable["cpu"] for node in snapshot.nodes)
    used = sum(pod.requests["cpu"] for pod in snapshot.pods if pod.node)
    assert LOAD - 0.06 <= used / total <= LOAD + 0.01
    waiting = Counter(pod.role is None for pod in snapshot.pods if not pod.node)
    assert waiting[True] >= 1
    assert waiting[False] >= 1
    assert any(pod.deleting for pod in snapshot.pods)


def test_no_job_has_more_trainers_than_it_may_and_guaranteed_ones_come_first(
    snapshot: Snapshot,
) -> None:
    """Jobs are as the reconciler would have left them."""
    counts = Counter(pod.owner_uid for pod in snapshot.pods if pod.role is not None)
    low = Counter(pod.owner_uid for pod in snapshot.pods if pod.tier is Tier.GUARANTEED)
    for job in snapshot.jobs:
        assert 2 <= job.min_trainers <= job.max_trainers <= 60
        assert counts[job.uid] <= job.max_trainers
        assert low[job.uid] == min(job.min_trainers, counts[job.uid])


def test_gpus_of_two_types_are_used_and_only_by_those_who_ask_for_them(snapshot: Snapshot) -> None:
    """A tenth of the nodes have 8 each."""
    kinds = Counter(node.labels[GPU_LABEL] for node in snapshot.nodes if GPU in node.allocatable)
    assert kinds == dict.fromkeys(GPU_KINDS, NODES // 20)
    gpu_nodes = {node.name for node in snapshot.nodes if GPU in node.allocatable}
    at_work = [pod for pod in snapshot.pods if pod.node and pod.namespace != "kube-system"]
    assert all((pod.node in gpu_nodes) == (GPU in pod.requests) for pod in at_work)
    assert any(GPU in pod.requests for pod in at_work)


@pytest.mark.parametrize("nodes", [1, 7, 20])
def test_small_clusters_can_be_made_and_planned_too(nodes: int) -> None:
    """New benchmarks are tried on a small cluster first."""
    small = cluster(nodes)
    assert len(small.nodes) == nodes
    assert len(plan(ClusterState.of(small), policy(), NOW_S).jobs) == len(small.jobs)
