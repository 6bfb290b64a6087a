"""A cluster of no nodes that an autoscaler extends, seen from the reconciler."""

import pytest

from kube import request
from kube.request import NODES
from policy.cluster.snapshot import Pod
from policy.names import Tier
from reconciler.jobs.status import WAITING
from tests.reconciler import objects
from tests.reconciler.world import Process, World

POLICY = """{
  "reserve": {"maxLoad": {"cpu": 1}},
  "autoscaling": {"mode": "pendingPods", "afterSeconds": 10, "timeoutSeconds": 60}
}"""


@pytest.fixture
def world() -> World:
    """No node at all."""
    return World(policy=POLICY)


def _waiting(world: World) -> tuple[str, str]:
    """Status and reason of the job's condition."""
    conditions = {c.type: c for c in world.job("net").status.conditions}
    return conditions[WAITING].status, conditions[WAITING].reason


def _add_node(world: World, name: str, cpu: int) -> None:
    world.ask(request.create(NODES, None, objects.node(name, cpu)))


def _guaranteed(pods: list[Pod]) -> int:
    return sum(pod.tier is Tier.GUARANTEED for pod in pods)


def test_a_pool_of_no_nodes_starts_a_job(world: World, process: Process) -> None:
    """Its minimum waits as pods, nothing else does; on the nodes that come it starts and grows."""
    world.add_job("net", 2, 10)
    process.run(30)
    pending = world.pods("net")
    condition = _waiting(world)
    _add_node(world, "n0", 11)
    process.run(5)
    at_first = world.running("net")
    _add_node(world, "n1", 11)
    process.run(10)

    assert [pod.tier for pod in pending] == [Tier.GUARANTEED] * 2
    assert condition == ("True", "NodesRequested")
    assert len(at_first) == _guaranteed(at_first) == 2
    assert len(world.running("net")) == 4
    assert _waiting(world) == ("False", "Started")


def test_the_pods_do_not_come_and_go_while_they_wait(world: World, process: Process) -> None:
    """An autoscaler that sees a pod for seconds only adds no node for it."""
    world.add_job("net", 2, 10)
    process.run(20)
    before = {pod.uid for pod in world.pods("net")}
    process.run(40)

    assert {pod.uid for pod in world.pods("net")} == before


def test_a_start_without_enough_nodes_is_taken_back(world: World, process: Process) -> None:
    """All of it, so that others can use what it had; it is requested again after a pause."""
    world.add_job("net", 2, 10)
    process.run(20)
    _add_node(world, "n0", 6)
    process.run(20)
    half = len(world.running("net"))
    process.run(60)
    after = len(world.pods("net"))
    process.run(300)

    assert (half, after) == (1, 0)
    assert _guaranteed(world.pods("net")) == 2
    assert world.job("net").accounting.failed == 0


def test_a_restart_of_the_reconciler_forgets_no_request(world: World, process: Process) -> None:
    """The pods say themselves what they wait for, and since when."""
    world.add_job("net", 2, 10)
    process.run(20)
    before = {pod.uid for pod in world.pods("net")}
    process.stop()
    successor = Process(world)
    successor.run(20)
    meanwhile = {pod.uid for pod in world.pods("net")}
    successor.run(60)
    successor.stop()

    assert meanwhile == before
    assert world.pods("net") == []


def test_requested_pods_run_in_the_node_pools_alone() -> None:
    """They have no marker, so no extender keeps them off the other nodes, which are free."""
    pools = '"nodePools": [{"name": "gpu", "labels": {"pool": "gpu"}}], "autoscaling"'
    world = World(20, 20, policy=POLICY.replace('"autoscaling"', pools))
    world.add_job("net", 2, 10)
    process = Process(world)
    process.run(30)
    waiting = world.pods("net")
    world.ask(request.create(NODES, None, objects.node("gpu", 11, pool="gpu")))
    process.run(5)
    process.stop()

    assert [pod.node for pod in waiting] == ["", ""]
    assert [pod.node for pod in world.running("net")] == ["gpu", "gpu"]
