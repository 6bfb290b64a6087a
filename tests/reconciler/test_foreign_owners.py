"""Pods whose controller is a Job of another namespace, as their creator says: the garbage collector ends them soon."""

from kube import request
from kube.request import PODS
from policy.cluster.snapshot import Phase
from tests.reconciler import objects
from tests.reconciler.world import Process, World


def _plant(world: World, job: str, number: int) -> None:
    """Creates a pod of another namespace that names a Job of "ml" as its controller."""
    pod = objects.pod(f"{job}-trainer-{number}", 1, namespace="elsewhere")
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": world.job(job).uid}
    pod["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    world.ask(request.create(PODS, "elsewhere", pod))


def test_pods_of_other_namespaces_are_not_counted_as_trainers() -> None:
    """Ids are reserved ahead while a job grows: what had their names elsewhere would end them before they begin."""
    world = World(*[60] * 4)
    process = Process(world)
    world.add_job("net", 1, 40, suspend=True)
    for number in range(40):
        _plant(world, "net", number)
    process.run(2)
    planted = world.pods("net")
    for pod in planted:
        world.end(pod, Phase.FAILED)
    process.run(1)
    for pod in planted:
        world.remove(pod)
    process.run(1)
    world.change_job("net", {"spec": {"suspend": False}})
    process.run(20)
    accounting = world.job("net").accounting
    process.stop()

    assert len(planted) == 40
    assert len(world.running("net")) == 40
    assert (accounting.failed, accounting.succeeded, accounting.disrupted) == (0, 0, 0)
