"""Whether the scheduler has the extender's entries, asked by a test pod, and what follows from it."""

from typing import Any

import pytest

from kube import errors, request
from kube.request import CONFIGMAPS, PODS
from policy.names import (
    POLICY_CONFIGMAP,
    POLICY_KEY,
    SCHEDULING_CONFIGMAP,
    SYSTEM_NAMESPACE,
    TRAINER_RESOURCE,
)
from policy.scheduling import Registration
from reconciler.manifests import scheduler as scheduler_manifests
from tests.reconciler import admission
from tests.reconciler.server import of
from tests.reconciler.world import Process, World

AUTO = '{"reserve": {"maxLoad": {"cpu": 1}}, "scheduling": {"extender": "auto"}}'


def _world(*cpus: int, extender: bool | None, policy: str = AUTO) -> World:
    world = World(*cpus, policy=policy)
    world.extender = extender
    return world


def _marked(world: World) -> list[bool]:
    """For each trainer whether it requests the marker."""
    return [pod.marked for pod in world.pods("net")]


def _stored(world: World) -> dict[str, str]:
    get = request.get(CONFIGMAPS, SYSTEM_NAMESPACE, SCHEDULING_CONFIGMAP)
    data: dict[str, str] = world.ask(get)["data"]
    return data


def _test_pods(world: World) -> list[Any]:
    return [
        pod
        for pod in world.api.all(PODS)
        if pod["metadata"]["name"] == scheduler_manifests.CHECK_POD
    ]


def _set_policy(world: World, text: str) -> None:
    body = {"data": {POLICY_KEY: text}}
    world.ask(request.merge_patch(CONFIGMAPS, SYSTEM_NAMESPACE, POLICY_CONFIGMAP, body))


@pytest.mark.parametrize("dry_runs", [True, False])
def test_a_webhook_that_names_another_scheduler_makes_nothing_in_vain(*, dry_runs: bool) -> None:
    """Waiting trainers and servers stay, as new ones would get the same."""
    policy = '{"autoscaling":{"mode":"pendingPods","afterSeconds":10,"timeoutSeconds":600}}'
    world = _world(5, extender=True, policy=policy)
    world.api.admission.append(admission.scheduler_name("yunikorn"))
    if not dry_runs:
        error = errors.Unavailable("timed out")
        world.api.fake.faults.fail_next(
            error, 999, match=lambda sent: ("dryRun", "All") in sent.query
        )
    process = Process(world)
    servers = {"edl.training/parameter-servers": "1"}
    world.add_job("net", 4, 4, master=True, annotations=servers)
    process.run(30)
    pods = {pod.uid for pod in [*world.pods("net"), *world.servers("net")]}
    process.run(60)
    process.stop()

    assert len(pods) == 5
    assert {pod.uid for pod in [*world.pods("net"), *world.servers("net")]} == pods


@pytest.mark.parametrize(
    ("extender", "state"), [(True, Registration.REGISTERED), (False, Registration.MISSING)]
)
def test_a_test_pod_tells_whether_the_extender_is_registered(
    *, extender: bool, state: Registration
) -> None:
    """The result is stored, exported and followed by new trainers; the test pod is gone."""
    world = _world(10, extender=extender)
    process = Process(world)
    process.run(5)
    world.add_job("net", 1, 2)
    process.run(5)
    process.stop()

    assert process.loop.components.scheduler_checker.check.registration is state
    assert _stored(world) == {"scheduler": "default-scheduler", "extender": state}
    assert process.value(f'edl_reconciler_extender_registration{{state="{state}"}}') == "1.0"
    assert (len(world.running("net")), _marked(world)) == (2, [extender, extender])
    assert _test_pods(world) == []


def test_before_the_answer_trainers_have_no_marker() -> None:
    """They can be scheduled with and without the entries."""
    world = _world(10, extender=None)
    world.add_job("net", 2, 2)
    process = Process(world)
    process.run(3)
    process.stop()

    assert process.loop.components.scheduler_checker.check.registration is Registration.UNKNOWN
    assert _marked(world) == [False, False]
    assert len(_test_pods(world)) == 1


def test_trainers_with_a_marker_that_nobody_ignores_are_replaced() -> None:
    """Guaranteed ones and parameter servers too, which would wait for ever."""
    always = AUTO.replace("auto", "always")
    world = _world(20, extender=False, policy=always)
    world.add_job("net", 2, 3)
    process = Process(world)
    process.run(3)
    stuck = len(world.running("net")), any(_marked(world))
    _set_policy(world, AUTO)
    process.run(12)
    process.stop()

    assert stuck == (0, True)
    assert (len(world.running("net")), _marked(world)) == (3, [False] * 3)
    assert {pod.uid for pod in world.pods("net")} == {pod.uid for pod in world.running("net")}


def test_entries_that_are_taken_out_are_noticed_by_the_next_trainer() -> None:
    """No period is waited for: kube-scheduler's answer about a trainer gives rise to a check."""
    world = _world(10, extender=True)
    process = Process(world)
    process.run(12)
    world.extender = False
    world.add_job("net", 2, 2)
    process.run(15)
    process.stop()

    assert process.loop.components.scheduler_checker.check.registration is Registration.MISSING
    assert (len(world.running("net")), _marked(world)) == (2, [False, False])


def test_entries_that_are_added_are_noticed_by_the_next_check() -> None:
    """Running trainers stay as they are."""
    world = _world(10, extender=False)
    process = Process(world)
    process.run(4)
    world.extender = True
    world.clock.advance(300)
    process.run(4)
    process.stop()

    assert _stored(world)["extender"] == "registered"


def test_another_leader_continues_with_the_stored_result() -> None:
    """It reads it before its first check, and replaces a test pod that was left behind."""
    world = _world(10, extender=True)
    first = Process(world)
    first.run(4)
    first.stop()
    world.extender = None
    world.ask(
        request.create(
            PODS,
            SYSTEM_NAMESPACE,
            scheduler_manifests.check_pod(SYSTEM_NAMESPACE, "default-scheduler"),
        )
    )
    (left_behind,) = _test_pods(world)
    second = Process(world)
    second.run(2)
    world.add_job("net", 1, 1)
    second.run(12)
    (test_pod,) = _test_pods(world)
    second.stop()

    assert _marked(world) == [True]
    assert test_pod["metadata"]["uid"] != left_behind["metadata"]["uid"]


@pytest.mark.parametrize("extender", ["always", "never"])
def test_a_policy_that_decides_needs_no_test_pod(extender: str) -> None:
    """Nothing is created for the question."""
    world = _world(10, extender=True, policy=AUTO.replace("auto", extender))
    world.add_job("net", 1, 1)
    process = Process(world)
    process.run(3)
    process.stop()

    assert _marked(world) == [extender == "always"]
    assert not any(SYSTEM_NAMESPACE in write.path for write in world.api.writes)


def test_another_scheduler_is_checked_anew() -> None:
    """The test pod that waits for the old one is deleted; meanwhile nothing is known."""
    world = _world(10, extender=None)
    process = Process(world)
    process.run(3)
    named = AUTO.replace('"auto"', '"auto", "schedulerName": "edl-scheduler"')
    _set_policy(world, named)
    world.extender = True
    world.add_job("net", 1, 1)
    process.run(6)
    process.stop()

    assert _stored(world) == {"scheduler": "edl-scheduler", "extender": "registered"}
    assert {pod.scheduler for pod in world.pods("net")} == {"edl-scheduler"}


def test_a_refused_test_pod_is_tried_again_later() -> None:
    """A policy engine may not like it; trainers then have no marker, and the log says why."""
    world = _world(10, extender=True)
    world.api.fake.faults.fail_next(errors.Forbidden("policy engine"), match=of("POST", "/pods"))
    process = Process(world)
    process.run(5)
    after_5_s = process.loop.components.scheduler_checker.check.registration
    process.run(15)
    process.stop()

    assert after_5_s is Registration.UNKNOWN
    assert process.loop.components.scheduler_checker.check.registration is Registration.REGISTERED


def test_a_test_pod_that_somebody_deletes_is_made_again() -> None:
    """After half a minute."""
    world = _world(10, extender=None)
    process = Process(world)
    process.run(3)
    world.ask(request.delete(PODS, SYSTEM_NAMESPACE, scheduler_manifests.CHECK_POD, grace_s=0))
    world.extender = True
    process.run(35)
    process.stop()

    assert process.loop.components.scheduler_checker.check.registration is Registration.REGISTERED


def test_the_test_pod_requests_what_no_node_has_and_preempts_nobody() -> None:
    """It runs nowhere, adds no node and passes Pod Security `restricted`."""
    spec = scheduler_manifests.check_pod(SYSTEM_NAMESPACE, "default-scheduler")["spec"]

    assert spec["priorityClassName"] == "edl-surplus"
    assert TRAINER_RESOURCE in spec["containers"][0]["resources"]["limits"]
    assert spec["containers"][0]["securityContext"]["runAsNonRoot"] is True
