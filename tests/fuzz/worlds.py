"""Whole ticks of the control loop on random objects: no error, and other tenants as without them.

The hostile objects may use one node alone, and the jobs of others two nodes that hostile objects do
not tolerate. So what others have after some seconds does not depend on the hostile ones, however they
compete. The decoders, the plan, the writes and their answers are the real ones.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import cache
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
GOOD = (2, 3, 1)
"""What tenants without hostile objects have: running trainers of two jobs, whichever has more, and services."""
_PAUSES_S = (1, 1, 1, 1, 3, 11, 61)
"""Between two ticks; the longer ones end back-offs and grace periods."""
_SKEWS_S = (0, 0, 0, 0, 0, 0, -3600, -5, 5, 3600)
"""How much the reconciler's clock is ahead of the API server's."""
_FAULTS: tuple[Callable[[], errors.KubeError], ...] = (
    lambda: errors.TooManyRequests("slow down", status=429, reason="TooManyRequests"),
    lambda: errors.Unavailable("the connection broke"),
    lambda: errors.Conflict("changed meanwhile", status=409, reason="Conflict"),
    lambda: errors.Forbidden("a quota", status=403, reason="Forbidden"),
    lambda: errors.Gone("too old", status=410, reason="Expired"),
)


def hostile_world(random: Random) -> None:
    """A few hostile Jobs and pods beside jobs that run or start, and odd things that happen meanwhile.

    Those are changes of the hostile objects, faults of the API server, time that passes, a clock that
    is wrong by up to an hour, and another process that takes over.
    """
    runs = random.random() < 0.8
    world = _running_world().copy() if runs else new_world()
    before = _good_uids(world)
    owners = [
        put(world, JOBS, hostile.job(random, f"bad-{n}"))
        for n in range(random.choice((1, 1, 2, 3)))
    ]
    for number in range(random.choice((0, 0, 1, 2, 3, 6))):
        put(world, PODS, hostile.pod(random, _pod_name(random, number), random.choice(owners)))
    ahead_s = random.choice(_SKEWS_S)
    process = Process(world, writers=0, ahead_s=ahead_s)
    try:
        for number in range(random.choice((1, 2, 2, 3, 4))):
            # A process that has never read a valid policy does nothing.
            if (runs or number) and random.random() < 0.2:
                _fail(world, random)
            process.round()
            world.api.fake.faults.clear()
            _change(world, random)
            world.step(random.choice(_PAUSES_S))
            if runs and random.random() < 0.1:
                process.stop()
                process = Process(world, writers=0, ahead_s=ahead_s)
        process.round()
        check(world, process)
        assert not runs or _good_uids(world) == before, "pods of others were made again"
    finally:
        process.stop()


def hostile_annotations(random: Random) -> None:
    """Fifty Jobs that are ordinary but for their annotations: four to ten of EDL's each."""
    world = new_world()
    for number in range(50):
        body = objects.job(f"bad-{number}", 1, 2)
        body["metadata"]["namespace"] = hostile.NAMESPACE
        body["metadata"]["annotations"] |= hostile.annotations(random) | hostile.annotations(random)
        body["spec"]["template"]["spec"]["nodeSelector"] = {"pool": hostile.POOL}
        put(world, JOBS, body)
    run_and_check(world, Process(world, writers=0))


def run_and_check(world: World, process: Process) -> None:
    """Runs the loop for some seconds; checks what others have.

    Raises:
        AssertionError: see `check`.
        Exception: a tick failed.
    """
    try:
        process.run(SECONDS)
        check(world, process)
    finally:
        process.stop()


def check(world: World, process: Process) -> None:
    """Checks what others have, as soon as they have it.

    Raises:
        AssertionError: others have not what they have without hostile objects, or some object made
            EDL fail, so that it was kept out.
    """
    for _ in range(MAX_SECONDS):
        if _good(world) == GOOD:
            break
        process.run(1)
    assert _good(world) == GOOD, _good(world)
    assert process.loop.components.quarantine.total == {"job": 0, "pod": 0}


def new_world() -> World:
    """Without hostile objects: two nodes and two jobs of one tenant, and one node of another.

    On a node that nobody selects most of the cluster is free: a hostile service may fill its own
    node, and leaves the reserve of any policy alone.
    """
    world = World(16, 16)
    for name in ("n0", "n1"):
        body = {"metadata": {"labels": _PLACE}, "spec": {"taints": [_TAINT]}}
        world.ask(request.merge_patch(NODES, None, name, body))
    evil = objects.node("evil", 40, pool=hostile.POOL)
    evil["status"]["allocatable"] |= {"nvidia.com/gpu": "8", "x": "100", "ephemeral-storage": "1Ti"}
    world.ask(request.create(NODES, None, evil))
    idle = objects.node("idle", 40_000) | {"spec": {"taints": [_TAINT]}}
    world.ask(request.create(NODES, None, idle))
    place: dict[str, Any] = {"tolerations": [_TOLERATION], "nodeSelector": _PLACE}
    for name, most in (("good-a", 3), ("good-b", 3)):
        world.add_job(name, 1, most)
        world.change_job(name, {"spec": {"template": {"spec": place}}})
    world.add_services(1, cpu=5, priority=0, **place)
    return world


@cache
def _running_world() -> World:
    """The new world after its jobs have started; to be copied only."""
    world = new_world()
    run_and_check(world, Process(world, writers=0))
    return world


def put(world: World, resource: request.Resource, body: dict[str, Any]) -> dict[str, Any] | None:
    """Stores an object as it is; None where even the fake server refuses it."""
    where = (resource, hostile.NAMESPACE)
    with suppress(errors.KubeError):
        stored: dict[str, Any] = world.ask(request.create(*where, body))
        if "status" in body:
            name, status = stored["metadata"]["name"], {"status": body["status"]}
            world.ask(request.merge_patch(*where, name, status, subresource="status"))
        return stored
    return None


def _pod_name(random: Random, number: int) -> str:
    """Of a service, or of a trainer or server of a hostile Job."""
    job = f"bad-{random.randint(0, 1)}"
    return random.choice((f"pod-{number}", f"{job}-trainer-{number}", f"{job}-ps-{number}"))


def _good(world: World) -> tuple[int, int, int]:
    fewer, more = sorted(len(world.running(name)) for name in ("good-a", "good-b"))
    return fewer, more, sum(pod.namespace == "shop" for pod in world.running())


def _good_uids(world: World) -> set[str]:
    return {pod.uid for pod in world.api.pods() if pod.namespace in {"ml", "shop"}}


def _change(world: World, random: Random) -> None:
    """Changes, ends or deletes some hostile object."""
    name = f"bad-{random.randint(0, 2)}"
    body: dict[str, Any]
    with suppress(errors.KubeError):
        if random.random() < 0.4:
            body = {
                "metadata": {"annotations": hostile.annotations(random, random.choice((0.0, 1.0)))}
            }
            world.ask(request.merge_patch(JOBS, hostile.NAMESPACE, name, body))
        elif random.random() < 0.3:
            world.ask(request.delete(JOBS, hostile.NAMESPACE, name))
        elif random.random() < 0.3:
            body = {"data": {POLICY_KEY: random.choice(hostile.TEXTS)}}
            world.ask(request.merge_patch(CONFIGMAPS, SYSTEM_NAMESPACE, POLICY_CONFIGMAP, body))
        elif random.random() < 0.5:
            put(world, JOBS, hostile.job(random, name))
        else:
            pod = _pod_name(random, random.randint(0, 2))
            world.ask(request.delete(PODS, hostile.NAMESPACE, pod))


def _fail(world: World, random: Random) -> None:
    """Makes some of the next reads or writes fail, or loses their answers."""
    method = random.choice(("GET", "POST", "PATCH", "DELETE"))
    faults, count = world.api.fake.faults, random.choice((1, 2, 20))
    if random.random() < 0.3:
        faults.lose_answers(count, match=lambda sent: sent.method == method)
    else:
        faults.fail_next(random.choice(_FAULTS)(), count, match=lambda sent: sent.method == method)
