"""Synthetic clusters are what they claim to be."""

from collections import Counter

import pytest

from bench.clusters import LOAD, NOW_S, cluster, policy
from bench.shapes import GPU, GPU_KINDS, GPU_LABEL
from policy.elasticity import plan
from policy.index import Index
from policy.names import Tier
from policy.placement import admits
from policy.snapshot import Snapshot

NODES = 200


@pytest.fixture(scope="module")
def made() -> Snapshot:
    """A cluster large enough for every kind of pod."""
    return cluster(NODES)


def test_one_seed_makes_one_cluster_and_another_one_another(made: Snapshot) -> None:
    """Figures of two runs are about the same thing."""
    assert cluster(NODES) == made
    assert cluster(NODES, seed=2) != made


def test_sizes_are_in_the_ratio_of_the_issue(made: Snapshot) -> None:
    """5 000 nodes, 50 000 pods, 1 000 jobs, scaled."""
    assert (len(made.nodes), len(made.pods), len(made.jobs)) == (NODES, 10 * NODES, NODES // 5)
    assert len({pod.uid for pod in made.pods}) == len(made.pods)
    assert len({pod.key for pod in made.pods}) == len(made.pods)


def test_no_node_holds_more_than_it_has(made: Snapshot) -> None:
    """Whatever resource one looks at."""
    index = Index.of(made)
    assert all(amount >= 0 for free in index.available.values() for amount in free.values())


def test_every_pod_is_on_a_node_that_admits_it(made: Snapshot) -> None:
    """Taints and selectors hold; only daemons are on cordoned nodes."""
    nodes = {node.name: node for node in made.nodes}
    for pod in made.pods:
        if pod.node and pod.namespace != "kube-system":
            assert admits(nodes[pod.node], pod.constraints) is None


def test_the_cluster_is_nearly_full_and_some_pods_wait_or_leave(made: Snapshot) -> None:
    """A plan has something to do, but not everything."""
    total = sum(node.allocatable["cpu"] for node in made.nodes)
    used = sum(pod.requests["cpu"] for pod in made.pods if pod.node)
    assert LOAD - 0.06 <= used / total <= LOAD + 0.01
    waiting = Counter(pod.role is None for pod in made.pods if not pod.node)
    assert waiting[True] >= 1
    assert waiting[False] >= 1
    assert any(pod.deleting for pod in made.pods)


def test_no_job_has_more_trainers_than_it_may_and_guaranteed_ones_come_first(
    made: Snapshot,
) -> None:
    """Jobs are as the reconciler would have left them."""
    counts = Counter(pod.owner_uid for pod in made.pods if pod.role is not None)
    low = Counter(pod.owner_uid for pod in made.pods if pod.tier is Tier.GUARANTEED)
    for job in made.jobs:
        assert 2 <= job.min_trainers <= job.max_trainers <= 60
        assert counts[job.uid] <= job.max_trainers
        assert low[job.uid] == min(job.min_trainers, counts[job.uid])


def test_gpus_of_two_types_are_used_and_only_by_those_who_ask_for_them(made: Snapshot) -> None:
    """A tenth of the nodes have 8 each."""
    kinds = Counter(node.labels[GPU_LABEL] for node in made.nodes if GPU in node.allocatable)
    assert kinds == dict.fromkeys(GPU_KINDS, NODES // 20)
    gpu_nodes = {node.name for node in made.nodes if GPU in node.allocatable}
    at_work = [pod for pod in made.pods if pod.node and pod.namespace != "kube-system"]
    assert all((pod.node in gpu_nodes) == (GPU in pod.requests) for pod in at_work)
    assert any(GPU in pod.requests for pod in at_work)


@pytest.mark.parametrize("nodes", [1, 7, 20])
def test_small_clusters_can_be_made_and_planned_too(nodes: int) -> None:
    """Whoever adds a benchmark tries it on a small one first."""
    made = cluster(nodes)
    assert len(made.nodes) == nodes
    assert len(plan(Index.of(made), policy(), NOW_S).jobs) == len(made.jobs)
