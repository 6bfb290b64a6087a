"""Roles of a TrainingJob: what its status counts, how its scale is told, what its pods are."""

from collections.abc import Mapping
from typing import Any

import orjson
import pytest

from kube import request
from kube.request import EVENTS, JOBS, PODS, TRAININGJOBS
from policy.planning.plan import JobPlan
from policy.reasons import Reason
from reconciler.jobs import training_status
from reconciler.jobs.role_counts import JobRoles, RoleCount
from reconciler.manifests import training_job as manifests
from tests.reconciler.training_jobs import (
    Controller,
    add_training_job,
    change_training_job,
    end_job,
    find_job,
    find_status,
    new_training_job,
)
from tests.reconciler.world import Process, World, posted, write_events

OWN: dict[str, Any] = {
    "spec": {
        "containers": [
            {
                "name": "own",
                "image": "own:1",
                "ports": [{"containerPort": 7164}],
                "resources": {"requests": {"cpu": "1"}},
            }
        ]
    }
}


def _running(world: World, training_job: dict[str, Any]) -> tuple[Process, Controller]:
    """A reconciler and its controller, after some seconds with a TrainingJob."""
    add_training_job(world, training_job)
    reconciler = Process(world)
    training = Controller(world, role_counts=reconciler.loop.role_counts)
    _pass_time(reconciler, training)
    return reconciler, training


def _pass_time(reconciler: Process, training: Controller) -> None:
    for _ in range(6):
        training.settle()
        reconciler.run(2)
    training.settle()


def test_the_status_counts_each_role() -> None:
    """As the plan wants them, and as they are; after the end none is wanted."""
    world = World(16, 16)
    training_job = new_training_job(
        parameterServers={"replicas": 2, "template": OWN}, master={"template": OWN}
    )
    reconciler, training = _running(world, training_job)
    roles = find_status(world)["roles"]

    assert roles == {
        "trainer": {"desired": 6, "ready": 6, "failed": 0},
        "parameterServers": {"desired": 2, "ready": 2, "failed": 0},
        "master": {"desired": 1, "ready": 1, "failed": 0},
    }
    end_job(world, "Complete", "CompletionsReached")
    training.settle()
    roles = find_status(world)["roles"]
    assert {count["desired"] for count in roles.values()} == {0}
    reconciler.stop()


def test_a_trainer_alone_is_one_role() -> None:
    """And one whose job the loop has not seen has none yet."""
    world = World(8)
    add_training_job(world, new_training_job())
    training = Controller(world)
    training.settle()
    assert "roles" not in find_status(world)

    reconciler = Process(world)
    leading = Controller(world, role_counts=reconciler.loop.role_counts)
    _pass_time(reconciler, leading)
    assert find_status(world)["roles"].keys() == {"trainer"}
    reconciler.stop()


def test_events_tell_the_history_of_its_scale() -> None:
    """From what to what, and why it is no more."""
    world = World(16, 16)
    reconciler, training = _running(world, new_training_job())
    world.clock.advance(20)
    change_training_job(world, {"trainer": {"max": 3}})
    _pass_time(reconciler, training)
    write_events(training.recorder)
    told = [
        (event["reason"], event["message"].partition(":")[0])
        for event in world.api.all(EVENTS)
        if event["involvedObject"]["kind"] == "TrainingJob"
    ]

    assert sorted(told) == [
        ("JobCreated", "its Job exists"),
        ("ScaledDown", "from 6 to 3 trainers"),
        ("ScaledUp", "from 0 to 6 trainers"),
    ]
    reconciler.stop()


@pytest.mark.parametrize(
    ("old", "new", "phase", "expected"),
    [
        (2, 6, "Running", ("ScaledUp", "from 2 to 6 trainers: it is at its max")),
        (6, 2, "Running", ("ScaledDown", "from 6 to 2 trainers: it is at its max")),
        (6, 6, "Running", None),
        (6, 0, "Succeeded", None),
        (6, None, "Running", None),
    ],
)
def test_another_number_is_told_once(
    old: int, new: int | None, phase: str, expected: tuple[str, str] | None
) -> None:
    """The end of a job is told by its phase."""
    before = {"roles": {"trainer": {"desired": old}}}
    after = {"phase": phase, "roles": {} if new is None else {"trainer": {"desired": new}}}

    assert training_status.scale(before, after, "it is at its max") == expected


def test_counts_stay_while_nobody_counts() -> None:
    """A new leader has no plan yet: the status does not fall to nothing."""
    old = {"trainer": {"desired": 4, "ready": 4, "failed": 1}}
    training_job = {"metadata": {"name": "digits"}, "spec": {}, "status": {"roles": old}}
    acceptance = training_status.Acceptance()
    status = training_status.status(training_job, None, acceptance, "now")
    counted = training_status.status(
        training_job, None, acceptance, "now", JobRoles(5, master=RoleCount(1, 0, 0))
    )

    assert status["roles"] == old
    assert counted["roles"] == {
        "trainer": {"desired": 5, "ready": 0, "failed": 0},
        "master": {"desired": 1, "ready": 0, "failed": 0},
    }


def test_new_figures_of_the_same_number_are_no_change() -> None:
    """A plan has other figures each second: TrainingJobs are not looked at for that."""
    before, after = (
        JobPlan("ml/digits", 2, 4, Reason.WAITING_FOR_ROOM, {"short": text}, 0.1)
        for text in ("1", "2")
    )

    assert JobRoles(4, plan=before) == JobRoles(4, plan=after)
    assert JobRoles(4, plan=before) != JobRoles(5, plan=before)


def test_volumes_reach_every_role() -> None:
    """Data and output; what a template has itself of that name or path stays."""
    volumes = [{"name": "data", "emptyDir": {}}, {"name": "out", "emptyDir": {}}]
    mounts = [{"name": "data", "mountPath": "/data"}, {"name": "out", "mountPath": "/out"}]
    fields: dict[str, Any] = {"volumes": volumes, "volumeMounts": mounts}
    training_job = new_training_job(
        **fields,
        parameterServers={"replicas": 2, "template": OWN},
        master={"template": OWN},
    )
    pod = training_job["spec"]["trainer"]["template"]["spec"]
    pod["volumes"] = [{"name": "data", "hostPath": {"path": "/mnt"}}]
    pod["containers"][0]["volumeMounts"] = [{"name": "own", "mountPath": "/out"}]
    training_job["metadata"]["uid"] = "u"
    job = manifests.job(training_job)
    annotations = job["metadata"]["annotations"]
    spec = job["spec"]["template"]["spec"]

    assert spec["volumes"] == [{"name": "data", "hostPath": {"path": "/mnt"}}, volumes[1]]
    assert spec["containers"][0]["volumeMounts"] == [
        {"name": "own", "mountPath": "/out"},
        mounts[0],
    ]
    for role in ("master", "parameter-server"):
        role_spec = orjson.loads(annotations[f"edl.training/{role}-template"])["spec"]
        assert role_spec["volumes"] == volumes
        assert role_spec["containers"][0]["volumeMounts"] == mounts


def test_servers_placed_by_a_template_get_no_volumes() -> None:
    """EDL's program would not use them."""
    template = {"spec": {"nodeSelector": {"disk": "ssd"}}}
    spec = new_training_job(
        volumes=[{"name": "data", "emptyDir": {}}],
        parameterServers={"replicas": 2, "template": template},
    )["spec"]
    annotations = manifests.annotations(spec)

    assert orjson.loads(annotations["edl.training/parameter-server-template"]) == template
    assert annotations["edl.training/master"] == "true"


def test_a_job_with_annotations_gets_the_same_pods() -> None:
    """Byte for byte, but for what names the one or the other: there is one code path."""
    training_job = new_training_job(
        parameterServers={"replicas": 2, "template": OWN},
        master={"template": OWN},
        environment=["paddle", "torch"],
    )
    training_job["spec"]["trainer"] |= {"processes": 4, "sizes": [2, 4, 6], "weight": 2}
    world = World(16, 16)
    reconciler, _ = _running(world, training_job)
    reconciler.stop()
    job = find_job(world)
    kept = ("edl.training/training-job", "edl.training/template-hash", "edl.training/books")
    other = World(16, 16)
    other.ask(request.create(JOBS, "ml", _annotated(job, kept)))
    process = Process(other)
    process.run(12)
    process.stop()

    ours, theirs = (_pods(w) for w in (world, other))
    assert len(ours) == 8
    assert ours == theirs


def _annotated(job: Mapping[str, Any], without: tuple[str, ...]) -> dict[str, Any]:
    """The Job as a user would write it."""
    annotations = {n: t for n, t in job["metadata"]["annotations"].items() if n not in without}
    return {
        "metadata": {"name": "digits", "namespace": "ml", "annotations": annotations},
        "spec": job["spec"],
    }


def _pods(world: World) -> dict[str, Any]:
    """Name -> the pod as it was requested, without uids and addresses."""
    pods = {pod["metadata"]["name"]: pod for pod in posted(world, "/pods")}
    assert len(pods) == len(world.api.all(PODS))
    text = orjson.dumps(pods, option=orjson.OPT_SORT_KEYS).decode()
    job_uid = next(iter(pods.values()))["metadata"]["ownerReferences"][0]["uid"]
    plain: dict[str, Any] = orjson.loads(text.replace(job_uid, "uid"))
    return plain


def test_deletion_leaves_nothing_that_is_not_owned() -> None:
    """Everything that is created for it has its Job as owner, and the Job has it."""
    world = World(16, 16)
    training_job = new_training_job(
        parameterServers={"replicas": 2, "template": OWN}, master={"template": OWN}
    )
    reconciler, _ = _running(world, training_job)
    reconciler.stop()
    uid = world.ask(request.get(TRAININGJOBS, "ml", "digits"))["metadata"]["uid"]
    job = find_job(world)
    owners = {
        reference["uid"]
        for kind in (PODS, request.SERVICES)
        for api_object in world.api.all(kind)
        if api_object["metadata"]["namespace"] == "ml"
        for reference in api_object["metadata"].get("ownerReferences", [{"uid": ""}])
    }

    assert job["metadata"]["ownerReferences"][0]["uid"] == uid
    assert owners == {job["metadata"]["uid"]}
