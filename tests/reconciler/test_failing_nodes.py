"""A node on which containers fail at once, beside nodes that work."""

from collections import Counter

import pytest

from kube import request
from kube.request import PODS
from policy.cluster.snapshot import Phase, Pod
from tests.reconciler import objects
from tests.reconciler.world import Process, World

MINUTES = 10


@pytest.fixture
def world() -> World:
    """A node for three trainers, free like two others."""
    return World(16, 16, 16)


def _run(world: World, process: Process, seconds: int, *, rejects: bool = False) -> None:
    """Runs the cluster in steps of five seconds; the kubelet of n0 ends every trainer."""
    for _ in range(seconds // 5):
        process.round()
        world.step(5)
        for pod in [p for p in _on(world, "n0") if not p.terminal]:
            (world.reject(pod, "n0") if rejects else world.end(pod, Phase.FAILED))
    process.round()


def _wait(world: World, process: Process, seconds: int) -> None:
    """Runs the cluster in steps of twenty seconds, with all nodes in order."""
    for _ in range(seconds // 20):
        process.round()
        world.step(20)
    process.round()


def _on(world: World, node: str) -> list[Pod]:
    return [
        p for job in ("a", "b", "c", "d") for p in world.pods(job, ended=True) if p.node == node
    ]


@pytest.mark.parametrize("rejects", [False, True], ids=["fails", "rejects"])
def test_no_job_fails_and_few_trainers_meet_it(
    world: World, process: Process, *, rejects: bool
) -> None:
    """At most three of a job in ten minutes; all of them run elsewhere."""
    for name in ("a", "b"):
        world.add_job(name, 1, 20, backoffLimit=1)
    _run(world, process, 60 * MINUTES, rejects=rejects)
    met = Counter(pod.job for pod in _on(world, "n0"))

    assert max(met.values()) <= 3
    for name in ("a", "b"):
        assert [c.type for c in world.job(name).status.conditions if c.status == "True"] == []
        assert len(world.running(name)) == 3
        assert (world.job(name).status.failed == 0) == rejects
    assert process.value("edl_reconciler_nodes_avoided") == "1.0"
    process.write_events()
    assert "node n0: trainers failed at their start" in world.events("NodeAvoided")[0]


def test_a_restart_forgets_nothing(world: World, process: Process) -> None:
    """What a job avoids follows from the pods that have ended."""
    world.add_job("a", 1, 20)
    _run(world, process, 30)
    met = len(_on(world, "n0"))
    second = Process(world)
    _run(world, second, 60)
    second.stop()

    assert len(_on(world, "n0")) == met


def test_the_node_is_tried_again_later(world: World, process: Process) -> None:
    """It may work again: after ten minutes, then after twenty."""
    world.add_job("a", 1, 20)
    _run(world, process, 15)
    first = len(_on(world, "n0"))
    _run(world, process, 600)
    second = len(_on(world, "n0"))
    _wait(world, process, 1000)
    third = len(_on(world, "n0"))
    _wait(world, process, 240)

    assert first < second == third
    assert [pod.node for pod in world.running("a")].count("n0") == 3


def test_a_program_that_fails_everywhere_ends_its_job(world: World, process: Process) -> None:
    """Its failures count although they come at the start, and no other job avoids its nodes."""
    world.add_job("a", 1, 1, backoffLimit=3)
    for _ in range(60):
        process.round()
        world.step(10)
        for pod in world.running("a"):
            world.end(pod, Phase.FAILED)
    world.add_job("b", 9, 9)
    process.run(10)

    assert "Failed" in [c.type for c in world.job("a").status.conditions]
    assert world.job("a").status.failed == 4
    assert len(world.running("b")) == 9


def test_on_a_single_node_nothing_is_avoided() -> None:
    """A job without another node tries that one again, and its failures count."""
    world = World(16)
    process = Process(world)
    world.add_job("a", 1, 1, backoffLimit=2)
    _run(world, process, 120)
    process.stop()

    assert world.job("a").status.failed == 3
    assert "Failed" in [c.type for c in world.job("a").status.conditions]


def test_surplus_that_fails_does_not_end_a_job_whose_minimum_runs(
    world: World, process: Process
) -> None:
    """They count as failed, and the job backs off; the guaranteed ones work on."""
    world.add_job("a", 2, 5, backoffLimit=0)
    process.run(40)
    for pod in world.running("a")[2:]:
        world.end(pod, Phase.FAILED)
    process.run(5)

    job = world.job("a")
    assert (job.status.failed, job.accounting.excused) == (3, 3)
    assert len(world.running("a")) == 2
    assert not job.over


def test_a_trainer_is_kept_off_the_node_by_its_own_affinity(world: World, process: Process) -> None:
    """So kube-scheduler knows it, with the extender or without."""
    world.add_job("a", 1, 20)
    _run(world, process, 60)
    newest = max(world.api.all(PODS), key=lambda pod: pod["metadata"]["name"].zfill(40))
    required = newest["spec"]["affinity"]["nodeAffinity"]
    (term,) = required["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]

    assert term == {
        "matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n0"]}]
    }


def _crash_once(process: Process, world: World, crashes: int) -> int:
    """Ends some trainers of job a at their start; seconds until all are back."""
    process.run(4)
    everyone = world.running("a")
    for pod in everyone[:crashes]:
        world.end(pod, Phase.FAILED)
    for waited_s in range(700):
        process.run(1)
        if len(world.running("a")) == len(everyone):
            return waited_s
    return 700


@pytest.mark.parametrize("crashes", [1, 4])
def test_a_crash_costs_a_minimum_that_needs_all_nodes_one_back_off(crashes: int) -> None:
    """No other node has room for its trainers, so it does not wait ten minutes for one."""
    world = World(10, 10)
    process = Process(world)
    world.add_job("a", 4, 4)
    waited_s = _crash_once(process, world, crashes)
    process.stop()

    assert waited_s < 30


def test_a_crash_on_many_nodes_costs_a_minimum_one_back_off() -> None:
    """The job blames itself, and avoids no node: a file system was away for seconds."""
    world = World(16, 16, 16, 16)
    web = objects.pod("web", 14)
    web = {**web, "spec": {**web["spec"], "nodeName": "n3"}, "status": {"phase": "Running"}}
    world.ask(request.create(PODS, "shop", web))
    process = Process(world)
    world.add_job("a", 9, 9, backoffLimit=20)
    waited_s = _crash_once(process, world, 9)
    process.stop()

    assert waited_s < 60
