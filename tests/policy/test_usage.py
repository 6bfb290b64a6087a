"""Sums of what training and services use of the cluster."""

from dataclasses import replace

from policy.cluster.snapshot import Phase
from policy.cluster.usage_report import usage_line
from tests.support.builders import GI, cluster_state, job, node, server, servers, service, trainers

JOB = job("net", cpu=5, servers=servers(1, cpu=1))


def test_bound_pods_count_for_what_they_belong_to() -> None:
    """Parameter servers are training; a pod without a node uses nothing yet."""
    pods = [*trainers(JOB, ["n0", "n0"]), server(JOB, 0, "n0"), service("web", 3, "n1")]
    cluster = cluster_state([node("n0"), node("n1")], [JOB], [*pods, service("waits", 2)])

    assert cluster.usage.training["cpu"] == 11_000
    assert cluster.usage.services["cpu"] == 3_000


def test_sums_follow_every_change() -> None:
    """Of a pod that gets a node, ends, or goes."""
    web = service("web", 3, "n0")
    cluster = cluster_state([node("n0")], [JOB], [service("late", 2), web, *trainers(JOB, ["n0"])])
    cluster.put_pod(service("late", 2, "n0"))
    placed = cluster.usage.services["cpu"]
    cluster.put_pod(replace(web, phase=Phase.SUCCEEDED))
    cluster.drop_pod("net-000")

    assert placed == 5_000
    assert cluster.usage.services["cpu"] == 2_000
    assert cluster.usage.training["cpu"] == 0


def test_the_use_of_the_cluster_is_one_line() -> None:
    """What the nodes have, and what training and services request of it."""
    owner = job("net", cpu=5, memory=2)
    pods = [*trainers(owner, ["n0", "n0"]), service("web", 2.5, "n1", memory=1.5)]
    nodes = [node("n0", gpus=4), node("n1")]
    nodes[0] = replace(nodes[0], allocatable={**nodes[0].allocatable, "hugepages-2Mi": GI})
    cluster = cluster_state(nodes, [owner], pods)

    assert usage_line(cluster) == (
        "2 nodes; CPU 36 cores (training 10, services 2.5); memory 128 GiB (training 4, services 1.5); "
        "nvidia.com/gpu 4 (training 0, services 0)"
    )
