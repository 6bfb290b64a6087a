"""TrainingJobs whose watch is behind, whose Job is another's, and that are too many or too large."""

from typing import Any

import orjson
import pytest

from kube import errors, request, training_job
from kube.request import JOBS, TRAININGJOBS
from policy.names import LABEL_TRAINING_JOB
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
from tests.reconciler.world import World, write_events


def _reason(world: World, name: str = "digits") -> str:
    conditions = find_status(world, name).get("conditions", ())
    return next((c["reason"] for c in conditions if c["type"] == "Accepted"), "")


def _events(world: World, training: Controller) -> list[str]:
    write_events(training.recorder)
    return [event["reason"] for event in world.api.all(request.EVENTS)]


def test_one_that_is_deleted_and_created_again_gets_a_job_of_its_own() -> None:
    """Once the garbage collector has taken the old one: at once, whatever the pause is by then."""
    world = World(8)
    add_training_job(world, new_training_job())
    training = Controller(world)
    training.settle()
    old = find_job(world)["metadata"]["uid"]
    world.ask(request.delete(TRAININGJOBS, "ml", "digits"))
    add_training_job(world, new_training_job())
    for _ in range(5):
        training.look()
        world.clock.advance(30)
    assert _reason(world) == "NameTaken"
    training.look()  # a pause of a minute begins
    world.ask(request.delete(JOBS, "ml", "digits"))
    training.settle()

    job = find_job(world)["metadata"]
    current = world.ask(request.get(TRAININGJOBS, "ml", "digits"))["metadata"]["uid"]
    assert job["uid"] != old
    assert job["ownerReferences"][0]["uid"] == current
    assert _reason(world) == "JobCreated"


def test_no_job_is_created_for_one_that_is_gone() -> None:
    """The watch of TrainingJobs may be behind that of Jobs: the garbage collector would take it again."""
    world = World(8)
    add_training_job(world, new_training_job())
    training = Controller(world)
    training.settle()
    world.ask(request.delete(TRAININGJOBS, "ml", "digits"))
    world.ask(request.delete(JOBS, "ml", "digits"))
    before = len(world.api.writes)
    training.controller.jobs.follow_once()
    training.controller.run_pass()

    assert len(world.api.writes) == before
    with pytest.raises(errors.NotFound):
        find_job(world)


def test_a_job_that_no_watch_shows_yet_is_its_own() -> None:
    """Its creation was answered late, or not at all: nobody else has taken the name."""
    world = World(8)
    add_training_job(world, new_training_job())
    training = Controller(world)
    training.look()
    training.controller.training_jobs.follow_once()
    change_training_job(world, {"trainer": {"max": 7}})
    training.controller.training_jobs.follow_once()
    training.controller.run_pass()  # the watch of Jobs shows nothing

    assert _reason(world) == "JobCreated"
    assert "NameTaken" not in _events(world, training)
    training.settle()
    annotations = find_job(world)["metadata"]["annotations"]
    assert annotations["edl.training/max-trainers"] == "7"


def test_a_job_without_its_label_is_named() -> None:
    """EDL sees such a Job by its name alone, and may not write labels: the user puts it back."""
    world = World(8)
    add_training_job(world, new_training_job())
    training = Controller(world)
    training.settle()
    world.change_job("digits", {"metadata": {"labels": {LABEL_TRAINING_JOB: None}}})
    training.settle()
    assert _reason(world) == "LabelMissing"

    world.change_job("digits", {"metadata": {"labels": {LABEL_TRAINING_JOB: "digits"}}})
    training.settle()
    assert _reason(world) == "JobCreated"


def test_a_correction_is_tried_at_once() -> None:
    """A refusal has its pause, which belongs to what was refused."""
    world = World(8)
    add_training_job(world, new_training_job())
    training = Controller(world)
    error = errors.Invalid("Job is invalid: spec.template", status=422, reason="Invalid")
    world.api.fake.faults.fail_next(error, 9, match=of("POST", "/jobs"))
    for _ in range(9):
        world.clock.advance(60)
        training.look()
    assert _reason(world) == "Refused"
    training.look()
    change_training_job(world, {"trainer": {"max": 7}})
    training.settle()

    assert _reason(world) == "JobCreated"


def test_an_api_server_that_fails_costs_a_try_for_each_pause() -> None:
    """And none is lost: when it is back, each TrainingJob has its Job."""
    world = World(8)
    for number in range(20):
        add_training_job(world, new_training_job(f"job-{number}"))
    training = Controller(world)
    away = errors.Unavailable("no route")
    world.api.fake.faults.fail_next(away, 10_000, match=of("POST", "/jobs"))
    before = len(world.api.writes)
    for _ in range(120):
        training.look()
        world.clock.advance(1)
    tries = len(world.api.writes) - before
    world.api.fake.faults.clear()
    world.clock.advance(60)
    training.settle()

    assert tries <= 20 * 10
    assert len(world.api.all(JOBS)) == 20


def test_one_whose_template_has_changed_is_still_followed() -> None:
    """There is nothing to try again, so there is no pause: its end is seen at once."""
    world = World(8)
    add_training_job(world, new_training_job())
    training = Controller(world)
    training.settle()
    template = {"spec": {"containers": [{"name": "other", "image": "none"}]}}
    change_training_job(world, {"trainer": {"template": template}})
    training.settle()
    assert _reason(world) == "TemplateChanged"
    end_job(world, "Complete", "CompletionsReached")
    training.settle()

    assert find_status(world)["phase"] == "Succeeded"


def test_a_huge_one_is_refused_and_kept_small() -> None:
    """It is named with its size; no Job is created, and memory has its head alone."""
    world = World(8)
    huge = new_training_job()
    script = "x" * (training_job.MAX_BYTES + 1)
    huge["spec"]["trainer"]["template"]["spec"]["containers"][0]["args"] = [script]
    add_training_job(world, huge)
    training = Controller(world)
    training.settle()
    (record,) = training.controller.training_jobs.records()
    condition = find_status(world)["conditions"][0]

    assert (condition["reason"], condition["status"]) == ("Refused", "False")
    assert "at most 393216 are allowed" in condition["message"]
    assert len(record.text) < 4096
    assert world.api.all(JOBS) == []


def test_what_kubectl_has_applied_last_is_not_kept() -> None:
    """The annotation has the object once more; others stay."""
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": "x" * 999, "team": "a"}
    record = training_job.decode(
        {"metadata": {"name": "a", "namespace": "ml", "uid": "u", "annotations": annotations}}
    )

    assert record.fields["metadata"]["annotations"] == {"team": "a"}


@pytest.mark.parametrize(
    ("spec", "status", "expires_s"),
    [
        ({"ttlSecondsAfterFinished": 5}, {"phase": "Failed"}, None),
        ({"ttlSecondsAfterFinished": 5}, {"phase": "Running", "completionTime": "X"}, None),
        ({}, {"phase": "Failed", "completionTime": "1970-01-01T00:00:10Z"}, None),
        ({"ttlSecondsAfterFinished": 5}, {"phase": "Failed", "completionTime": "?"}, None),
        (
            {"ttlSecondsAfterFinished": 5},
            {"phase": "Failed", "completionTime": "1970-01-01T00:00:10Z"},
            15.0,
        ),
    ],
)
def test_only_one_that_has_ended_expires(
    spec: dict[str, Any], status: dict[str, Any], expires_s: float | None
) -> None:
    """Whatever is stored in it."""
    metadata = {"name": "a", "namespace": "ml", "uid": "u"}
    record = training_job.decode({"metadata": metadata, "spec": spec, "status": status})

    assert record.expires_s == expires_s


def test_ten_thousand_at_rest_are_not_parsed() -> None:
    """A pass compares what it has seen; not even one that may expire is read again."""
    world = World(8)
    training = Controller(world)
    reflector = training.controller.training_jobs
    training.settle()
    body = new_training_job(ttlSecondsAfterFinished=9)
    for number in range(10_000):
        metadata = {"name": f"job-{number}", "namespace": "ml", "uid": f"uid-{number}"}
        reflector._store.put(metadata["uid"], training_job.decode({**body, "metadata": metadata}))  # noqa: SLF001 - without 10 000 requests
    controller = training.controller
    for record in reflector.records():
        controller._done[record.uid] = (record.text, b"", None)  # noqa: SLF001 - as after writes
    parsed = 0

    def count(_: Any) -> Any:
        nonlocal parsed
        parsed += 1

    original = orjson.loads
    try:
        training_job.orjson.loads = count  # type: ignore[attr-defined]
        assert controller.run_pass()
    finally:
        training_job.orjson.loads = original  # type: ignore[attr-defined]
    assert parsed == 0


def test_events_of_those_that_are_gone_are_forgotten() -> None:
    """The memory of an installation does not grow with all that ever ran."""
    world = World(8)
    add_training_job(world, new_training_job())
    training = Controller(world)
    training.settle()
    end_job(world, "Complete", "CompletionsReached")
    training.settle()
    world.ask(request.delete(TRAININGJOBS, "ml", "digits"))
    training.settle()

    assert training.recorder._last == {}  # noqa: SLF001 - nothing else shows it


@pytest.mark.parametrize("volumes", ["data", ["data"], 5, {"name": "data"}])
def test_a_template_with_fields_of_other_types_is_refused_with_a_status(volumes: Any) -> None:
    """The schema leaves templates open: its author would wait without a word."""
    world = World(8)
    broken = new_training_job(volumes=[{"name": "out", "emptyDir": {}}])
    broken["spec"]["trainer"]["template"]["spec"]["volumes"] = volumes
    add_training_job(world, broken)
    training = Controller(world)
    training.settle()

    assert _reason(world) == "Refused"
    assert "Refused" in _events(world, training)
    (condition, *_) = find_status(world)["conditions"]
    assert "volumes of a template is" in condition["message"]


def test_a_field_that_no_template_has_is_refused_with_a_status() -> None:
    """Its volume would be an empty one: the API server is asked to refuse what it would drop."""
    world = World(8)
    add_training_job(world, new_training_job())
    training = Controller(world)
    error = errors.KubeError(
        'strict decoding error: unknown field "spec.template.spec.volumes[0].claim"', status=400
    )

    def is_strict(api_request: request.Request) -> bool:
        return of("POST", "/jobs")(api_request) and ("fieldValidation", "Strict") in (
            api_request.query
        )

    world.api.fake.faults.fail_next(error, 99, match=is_strict)
    training.settle()

    assert _reason(world) == "Refused"
    assert training.controller.failing == 0
    (condition, *_) = find_status(world)["conditions"]
    assert 'unknown field "spec.template.spec.volumes[0].claim"' in condition["message"]
