"""Objects of any shape are parsed without an error, because the API server validates them later."""

from typing import Any

import pytest

from policy.admission.views import ConfigMapView, JobView, PodView


@pytest.mark.parametrize("document", [None, [], "x", {}, {"metadata": None, "spec": []}])
def test_any_document_is_a_pod_and_a_job(document: Any) -> None:
    """Missing fields have their defaults."""
    pod, job = PodView.parse(document), JobView.parse(document)

    assert (pod.labels, pod.containers, pod.grace_s) == ({}, (), 30)
    assert (pod.scheduler, pod.priority) == ("default-scheduler", None)
    assert (job.annotations, job.completions, job.template) == ({}, None, pod)


@pytest.mark.parametrize("labels", [None, [], "x", ["a"], {"a": None, "b": 1, 5: "c"}])
def test_labels_of_any_shape_are_read(labels: Any) -> None:
    """Names and values that are not strings are left out."""
    assert PodView.parse({"metadata": {"labels": labels}}).labels == {}
    assert PodView.parse({"metadata": {"annotations": {"a": "1", "b": 2}}}).annotations == {
        "a": "1"
    }


def test_a_field_of_the_wrong_type_counts_as_missing() -> None:
    """The API server refuses the object, with its own message."""
    spec = {
        "priority": "high",
        "terminationGracePeriodSeconds": 5.5,
        "schedulerName": "",
        "containers": {"name": "a"},
        "volumes": {"name": "a"},
    }
    pod = PodView.parse({"spec": spec})

    assert (pod.priority, pod.grace_s, pod.scheduler) == (None, 30, "default-scheduler")
    assert (pod.containers, pod.volumes) == ((), ())
    assert ConfigMapView.parse({"data": {"policy.yaml": 5}}).data == {}


def test_positions_in_a_list_are_kept() -> None:
    """A patch names containers by position."""
    container = {"name": "a", "resources": {"limits": {"cpu": "1", 5: "2"}, "requests": []}}
    pod = PodView.parse({"spec": {"containers": [1, container], "volumes": [1, {"name": "v"}]}})

    assert [view.name for view in pod.containers] == ["", "a"]
    assert (pod.containers[1].limits, pod.containers[1].requests) == (("cpu",), ())
    assert pod.volumes == ("v",)


def test_a_stored_job_may_run_unless_it_is_suspended_and_has_no_trainers() -> None:
    """A Job that is being deleted, or that has ended, is finished."""
    suspended = {"spec": {"suspend": True}}
    ended = {"status": {"conditions": [{"type": "Failed", "status": "True"}]}}

    assert JobView.parse({}).may_run
    assert not JobView.parse(suspended).may_run
    assert JobView.parse({**suspended, "status": {"active": 1}}).may_run
    assert JobView.parse(ended).is_finished
    assert JobView.parse({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}).is_finished
    assert not JobView.parse({}).is_finished
