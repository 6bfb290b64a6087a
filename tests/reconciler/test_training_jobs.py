"""TrainingJobs: their Jobs, and what their status says."""

from collections.abc import Callable
from typing import Any

import pytest

from kube import errors, request
from kube.request import EVENTS, JOBS, TRAININGJOBS, Request
from reconciler.jobs.training_jobs import TrainingJobController
from reconciler.manifests import training_job as manifests
from reconciler.records.events import EventRecorder
from tests.reconciler import objects
from tests.reconciler.server import of
from tests.reconciler.training_jobs import (
    Controller,
    add_training_job,
    change_training_job,
    end_job,
    find_job,
    find_status,
    new_training_job,
)
from tests.reconciler.world import Process, World, write_events


def _condition(status: dict[str, Any], kind: str) -> tuple[str, str]:
    return next((c["status"], c["reason"]) for c in status["conditions"] if c["type"] == kind)


def test_a_training_job_becomes_an_elastic_job_of_its_name() -> None:
    """It owns the Job, which runs as one that a user has annotated, and its status says how."""
    world = World(8)
    add_training_job(world, new_training_job())
    training = Controller(world)
    reconciler = Process(world)
    training.settle()
    reconciler.run(5)
    training.settle()

    job, status = find_job(world), find_status(world)
    assert job["metadata"]["ownerReferences"][0]["kind"] == "TrainingJob"
    assert job["spec"]["template"]["spec"]["restartPolicy"] == "Never"
    assert len(world.running("digits")) == 6
    assert status["trainers"] == {
        "active": 6,
        "ready": 6,
        "terminating": 0,
        "succeeded": 0,
        "failed": 0,
    }
    assert (status["phase"], status["observedGeneration"]) == ("Running", 1)
    assert _condition(status, "Running") == ("True", "Running")
    assert _condition(status, "Accepted") == ("True", "JobCreated")
    reconciler.stop()


def test_at_rest_nothing_is_written() -> None:
    """A pass over TrainingJobs that have not changed costs no request."""
    world = World(8)
    add_training_job(world, new_training_job())
    training = Controller(world)
    training.settle()
    written = len(world.api.writes)
    for _ in range(5):
        world.clock.advance(60)
        training.look()

    assert len(world.api.writes) == written


def test_annotations_say_everything_that_the_training_job_says() -> None:
    """Trainer, master and parameter servers have the fields that Jobs have as annotations."""
    spec = new_training_job(
        master={
            "data": "/data/train",
            "epochs": 12,
            "maxSteps": 900,
            "heartbeatSeconds": "5",
            "stuckSeconds": "60",
        },
        parameterServers={"replicas": 2, "cpu": "1", "memory": "2Gi", "checkpointClaim": "ps"},
    )["spec"]
    spec["trainer"] |= {"weight": 3, "queue": "vision"}

    assert manifests.annotations(spec) == {
        "edl.training/min-trainers": "2",
        "edl.training/max-trainers": "6",
        "edl.training/weight": "3",
        "edl.training/queue": "vision",
        "edl.training/master": "true",
        "edl.training/data": "/data/train",
        "edl.training/epochs": "12",
        "edl.training/master-max-steps": "900",
        "edl.training/master-heartbeat-seconds": "5",
        "edl.training/master-stuck-seconds": "60",
        "edl.training/parameter-servers": "2",
        "edl.training/parameter-server-cpu": "1",
        "edl.training/parameter-server-memory": "2Gi",
        "edl.training/checkpoint-claim": "ps",
    }


@pytest.mark.parametrize(
    ("spec", "has_master"),
    [
        ({}, False),
        ({"master": {}}, True),
        ({"master": {"enabled": False}}, False),
        ({"master": {"enabled": False, "maxSteps": 3}}, False),
        ({"parameterServers": {"replicas": 1}}, True),
    ],
)
def test_a_master_is_there_where_it_is_asked_for(spec: dict[str, Any], has_master: bool) -> None:
    """Or where parameter servers need it; settings of a master that is switched off are left out."""
    annotations = manifests.annotations(new_training_job(**spec)["spec"])

    assert ("edl.training/master" in annotations) == has_master
    assert has_master or not any("master" in name for name in annotations)


def test_scale_and_suspend_reach_the_job() -> None:
    """`kubectl scale` sets max; each change is one patch, and none comes after it."""
    world = World(8)
    add_training_job(world, new_training_job())
    training = Controller(world)
    training.settle()
    change_training_job(world, {"trainer": {"max": 3}, "suspend": True, "backoffLimit": 2})
    before = len(world.api.writes)
    training.settle()
    patches = [w for w in world.api.writes[before:] if of("PATCH", "/jobs/digits")(w)]

    job = find_job(world)
    assert job["metadata"]["annotations"]["edl.training/max-trainers"] == "3"
    assert (job["spec"]["suspend"], job["spec"]["backoffLimit"]) == (True, 2)
    assert len(patches) == 1
    assert find_status(world)["phase"] == "Suspended"


def test_a_field_that_is_taken_back_is_taken_from_the_job() -> None:
    """Its annotation goes, a limit becomes the default again."""
    world = World(8)
    training_job = new_training_job(backoffLimit=2)
    training_job["spec"]["trainer"]["queue"] = "vision"
    add_training_job(world, training_job)
    training = Controller(world)
    training.settle()
    change_training_job(world, {"trainer": {"queue": None}, "backoffLimit": None})
    training.settle()

    job = find_job(world)
    assert "edl.training/queue" not in job["metadata"]["annotations"]
    assert "backoffLimit" not in job["spec"]


def test_what_a_user_changes_at_the_job_is_put_right() -> None:
    """The TrainingJob is the only place to change."""
    world = World(8)
    add_training_job(world, new_training_job())
    training = Controller(world)
    training.settle()
    annotations = {"edl.training/max-trainers": "50", "edl.training/weight": "9"}
    world.change_job("digits", {"metadata": {"annotations": annotations}})
    training.settle()

    annotations = find_job(world)["metadata"]["annotations"]
    assert annotations["edl.training/max-trainers"] == "6"
    assert "edl.training/weight" not in annotations


def test_a_job_that_is_deleted_comes_again_unless_it_has_ended() -> None:
    """A TrainingJob that has ended keeps its status, whatever becomes of its Job."""
    world = World(8)
    add_training_job(world, new_training_job())
    training = Controller(world)
    training.settle()
    world.ask(request.delete(JOBS, "ml", "digits"))
    training.settle()
    end_job(world, "Complete", "CompletionsReached")
    training.settle()
    world.ask(request.delete(JOBS, "ml", "digits"))
    training.settle()

    with pytest.raises(errors.NotFound):
        find_job(world)
    assert find_status(world)["phase"] == "Succeeded"


@pytest.mark.parametrize(
    ("kind", "reason", "phase"),
    [
        ("Complete", "CompletionsReached", "Succeeded"),
        ("Failed", "BackoffLimitExceeded", "Failed"),
    ],
)
def test_the_end_of_the_job_is_its_end(kind: str, reason: str, phase: str) -> None:
    """With the reason, the time, and a condition for `kubectl wait`."""
    world = World(8)
    add_training_job(world, new_training_job())
    training = Controller(world)
    training.settle()
    end_job(world, kind, reason)
    training.settle()
    status = find_status(world)

    assert (status["phase"], status["reason"]) == (phase, reason)
    assert _condition(status, phase) == ("True", reason)
    assert status["completionTime"]


def test_a_training_job_that_has_ended_goes_when_its_time_is_over() -> None:
    """`ttlSecondsAfterFinished` deletes it, and its Job with it."""
    world = World(8)
    add_training_job(world, new_training_job(ttlSecondsAfterFinished=60))
    training = Controller(world)
    training.settle()
    end_job(world, "Complete", "CompletionsReached")
    training.settle()
    world.clock.advance(59)
    training.settle()
    assert find_status(world)["phase"] == "Succeeded"

    world.clock.advance(1)
    training.settle()
    with pytest.raises(errors.NotFound):
        find_status(world)


def test_a_job_that_is_not_its_own_is_left_alone() -> None:
    """The status says so, and when the name is free the Job is created."""
    world = World(8)
    world.add_job("digits", 1, 2)
    add_training_job(world, new_training_job())
    training = Controller(world)
    training.settle()
    status = find_status(world)
    assert _condition(status, "Accepted") == ("False", "NameTaken")
    assert (status["phase"], status["reason"]) == ("Pending", "NameTaken")
    assert find_job(world)["metadata"]["annotations"]["edl.training/max-trainers"] == "2"

    world.ask(request.delete(JOBS, "ml", "digits"))
    world.clock.advance(60)
    training.settle()
    assert _condition(find_status(world), "Accepted") == ("True", "JobCreated")


def test_a_template_that_has_changed_is_reported() -> None:
    """A Job's template cannot change: its trainers keep the first one."""
    world = World(8)
    add_training_job(world, new_training_job())
    training = Controller(world)
    training.settle()
    change_training_job(
        world, {"trainer": {"template": {"spec": {"containers": objects.containers(3)}}}}
    )
    training.settle()

    assert _condition(find_status(world), "Accepted") == ("False", "TemplateChanged")
    assert find_job(world)["spec"]["template"]["spec"]["containers"] == objects.containers(1)


def test_a_refusal_is_shown_and_costs_others_nothing() -> None:
    """One that the API server refuses waits longer with each try; the next one gets its Job."""
    world = World(8)
    for name in ("bad", "digits"):
        add_training_job(world, new_training_job(name))
    training = Controller(world)
    error = errors.Invalid("Job is invalid: spec.template", status=422, reason="Invalid")
    refused = _is_creation_of("bad")
    world.api.fake.faults.fail_next(error, 99, match=refused)
    tries = 0
    for _ in range(60):
        before = len(world.api.writes)
        training.look()
        tries += any(map(refused, world.api.writes[before:]))
        world.clock.advance(1)

    assert _condition(find_status(world, "bad"), "Accepted") == ("False", "Refused")
    assert _condition(find_status(world), "Accepted") == ("True", "JobCreated")
    assert 3 <= tries <= 8


def _is_creation_of(name: str) -> Callable[[Request], bool]:
    """Matches requests that create the Job of this name."""
    is_creation, text = of("POST", "/jobs"), f'"name":"{name}"'.encode()
    return lambda api_request: is_creation(api_request) and text in api_request.body


def test_events_say_what_became_of_it() -> None:
    """One for each change, about the TrainingJob."""
    world = World(8)
    add_training_job(world, new_training_job())
    training = Controller(world)
    training.settle()
    write_events(training.recorder)

    (event,) = world.api.all(EVENTS)
    assert event["involvedObject"]["kind"] == "TrainingJob"
    assert (event["reason"], event["type"]) == ("JobCreated", "Normal")


def test_a_damaged_training_job_costs_others_nothing() -> None:
    """Such as one that was stored under a schema that is gone."""
    world = World(8)
    add_training_job(world, {"metadata": {"name": "bad", "namespace": "ml"}, "spec": {}})
    add_training_job(world, new_training_job())
    training = Controller(world)
    training.settle()

    assert find_status(world)["phase"] == "Pending"


def test_the_many_of_one_namespace_do_not_delay_the_few_of_another() -> None:
    """One pass writes to a hundred, of namespaces in turn."""
    world = World(8)
    for number in range(150):
        add_training_job(world, new_training_job(f"many-{number}"))
    few = new_training_job("few")
    few["metadata"]["namespace"] = "vision"
    world.ask(request.create(TRAININGJOBS, "vision", few))
    training = Controller(world)
    training.look()
    created = [job["metadata"]["name"] for job in world.api.all(JOBS)]

    assert "few" in created
    assert len(created) == 100
    training.look()
    assert len(world.api.all(JOBS)) > 100


def test_a_standby_writes_nothing() -> None:
    """Only the leader does."""
    world = World(8)
    add_training_job(world, new_training_job())
    recorder = EventRecorder(world.api, "test")
    standby = TrainingJobController(world.api, recorder, lambda: False, watch_api=world.api)
    for reflector in standby.reflectors.values():
        reflector.follow_once()
    standby.run_pass()

    assert world.api.writes == []


def test_what_the_api_server_writes_into_a_job_is_no_difference() -> None:
    """Where the TrainingJob says nothing, the defaults of Jobs are in force."""
    training_job = new_training_job()
    training_job["metadata"]["uid"] = "uid-digits"
    del training_job["spec"]["suspend"]
    current = manifests.job(training_job)
    current["spec"] = {**current["spec"], "suspend": False, "backoffLimit": 6}

    assert manifests.changes(training_job, current) == {}
