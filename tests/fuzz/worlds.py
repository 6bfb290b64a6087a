"""Whole ticks of the control loop on random objects: no error, and other tenants as without them.

The hostile objects may use one node alone, and the jobs of others two nodes that hostile objects do
not tolerate. So what others have after some seconds does not depend on the hostile ones, however they
compete. The decoders, the plan, the writes and their answers are the real ones.
"""

from contextlib import suppress
from random import Random
from typing import Any

from kube import errors, request
from kube.request import CONFIGMAPS, JOBS, NODES, PODS
from policy.names import POLICY_CONFIGMAP, POLICY_KEY, SYSTEM_NAMESPACE
from tests.fuzz import hostile
from tests.reconciler import objects
from tests.reconciler.world import Process, World

SECONDS = 5
MAX_SECONDS = 40
"""As many trainers start at a time as kube-scheduler places: a job of many small ones goes first."""
_TAINT = {"key": "good", "value": "", "effect": "NoSchedule"}
_PLACE = {"pool": "good"}
_TOLERATION = {"key": "good", "operator": "Exists"}
GOOD = {"good-a": 3, "good-b": 2, "services": 1}
"""What tenants without hostile objects have: running trainers of two jobs, and services."""


def hostile_world(random: Random) -> None:
    """A few hostile Jobs, pods, nodes, and changes of them while the loop runs."""
    world = new_world()
    owners = [
        put(world, JOBS, hostile.job(random, f"bad-{n}")) for n in range(random.randint(1, 4))
    ]
    for number in range(random.randint(0, 6)):
        put(world, PODS, hostile.pod(random, f"pod-{number}", random.choice(owners)))
    run_and_check(world, Process(world, writers=0), random)


def hostile_annotations(random: Random) -> None:
    """Fifty Jobs that are ordinary but for their annotations: four to ten of EDL's each."""
    world = new_world()
    for number in range(50):
        body = objects.job(f"bad-{number}", 1, 2)
        body["metadata"]["namespace"] = hostile.NAMESPACE
        body["metadata"]["annotations"] |= hostile.annotations(random) | hostile.annotations(random)
        body["spec"]["template"]["spec"]["nodeSelector"] = {"pool": hostile.POOL}
        put(world, JOBS, body)
    run_and_check(world, Process(world, writers=0), None)


def run_and_check(world: World, process: Process, random: Random | None) -> None:
    """Runs the loop for some seconds, with changes where `random` is given; checks what others have.

    Raises:
        AssertionError: others have not what they have without hostile objects, or some object made
            EDL fail, so that it was kept out.
        Exception: a tick failed.
    """
    try:
        _run(world, process, random)
        assert _good(world) == GOOD, _good(world)
        assert process.loop.components.quarantine.total == {"job": 0, "pod": 0}
    finally:
        process.stop()


def new_world() -> World:
    """Without hostile objects: two nodes and two jobs of one tenant, and one node of another.

    On a node that nobody selects most of the cluster is free: a hostile service may fill its own
    node, and leaves the reserve of any policy alone.
    """
    world = World(16, 16)
    for name in ("n0", "n1"):
        body = {"metadata": {"labels": _PLACE}, "spec": {"taints": [_TAINT]}}
        world.ask(request.merge_patch(NODES, None, name, body))
    world.ask(request.create(NODES, None, objects.node("evil", 1000, pool=hostile.POOL)))
    idle = objects.node("idle", 40_000) | {"spec": {"taints": [_TAINT]}}
    world.ask(request.create(NODES, None, idle))
    place: dict[str, Any] = {"tolerations": [_TOLERATION], "nodeSelector": _PLACE}
    for name, most in (("good-a", 3), ("good-b", 3)):
        world.add_job(name, 1, most)
        world.change_job(name, {"spec": {"template": {"spec": place}}})
    world.add_services(1, cpu=5, priority=0, **place)
    return world


def put(world: World, resource: request.Resource, body: dict[str, Any]) -> dict[str, Any] | None:
    """Stores an object as it is; None where even the fake server refuses it."""
    with suppress(errors.KubeError):
        stored: dict[str, Any] = world.ask(request.create(resource, hostile.NAMESPACE, body))
        return stored
    return None


def _run(world: World, process: Process, random: Random | None) -> None:
    for second in range(SECONDS):
        process.round()
        world.step()
        if random is not None and second < SECONDS // 2:
            _change(world, random)
    for _ in range(MAX_SECONDS - SECONDS):
        if _good(world) == GOOD:
            break
        process.run(1)


def _good(world: World) -> dict[str, int]:
    running = {name: len(world.running(name)) for name in ("good-a", "good-b")}
    return {**running, "services": sum(pod.namespace == "shop" for pod in world.running())}


def _change(world: World, random: Random) -> None:
    """Changes, ends or deletes some hostile object."""
    name = f"bad-{random.randint(0, 3)}"
    body: dict[str, Any]
    with suppress(errors.KubeError):
        if random.random() < 0.5:
            body = {"metadata": {"annotations": hostile.annotations(random)}}
            world.ask(request.merge_patch(JOBS, hostile.NAMESPACE, name, body))
        elif random.random() < 0.3:
            world.ask(request.delete(JOBS, hostile.NAMESPACE, name))
        elif random.random() < 0.3:
            body = {"data": {POLICY_KEY: random.choice(hostile.TEXTS)}}
            world.ask(request.merge_patch(CONFIGMAPS, SYSTEM_NAMESPACE, POLICY_CONFIGMAP, body))
        else:
            number = random.randint(0, 5)
            world.ask(request.delete(PODS, hostile.NAMESPACE, f"pod-{number}"))
