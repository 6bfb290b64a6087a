"""A Job whose trainers' names are taken by pods that are not its own."""

from kube import request
from kube.request import EVENTS, PODS
from tests.reconciler import objects
from tests.reconciler.world import Process, World


def test_foreign_pods_with_the_names_of_trainers_are_stepped_over(
    world: World, process: Process
) -> None:
    """Pods of an earlier Job of that name, ended or stuck, or of a StatefulSet: they may stay."""
    for number in range(5):
        pod = objects.pod(f"net-trainer-{number}", 1, namespace="ml")
        world.ask(request.create(PODS, "ml", pod))
    world.add_job("net", 2, 2)
    process.run(8)
    process.write_events()

    assert [pod.trainer_id for pod in world.running("net")] == [5, 6]
    assert world.job("net").accounting.open == {5, 6}
    assert [e for e in world.api.all(EVENTS) if e["type"] == "Warning"] == []
