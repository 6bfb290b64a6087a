"""The workload's objects: what the experiment prescribes, and nothing invalid."""

from dataclasses import replace

import pytest

from e2e import workload
from e2e.workload import FULL, QUICK, Scenario
from policy.admission import job_settings, job_spec
from policy.admission.views import JobView
from policy.document import parser as document
from policy.names import LABEL_JOB, LABEL_ROLE


def test_the_full_scenario_is_the_experiment() -> None:
    """133 nodes, 2 348 CPU, 50.5 of them for system pods, and three steps up."""
    assert len(FULL.cpu_millis) == 133
    assert sum(FULL.cpu_millis.values()) == 2_348_000
    assert FULL.system_cpu_millis == 50_500
    assert FULL.services[-4:] == (100, 200, 300, 400)
    assert FULL.seconds == 220


def test_overcommit_is_a_policy_and_room_to_grow() -> None:
    """Of the trainers alone, with a quota that binds while few services run; without it none is written."""
    scenario = workload.overcommitted(FULL, 1.5)
    policy = document.parse(workload.policy(scenario))
    (rule,), (quota,) = policy.overcommit, policy.quotas

    assert workload.policy(FULL) == ""
    assert (scenario.max_trainers, scenario.name) == (90, "full-overcommit")
    assert (rule.namespaces, rule.trainers) == (("training",), {"cpu": 1.5})
    assert quota.limits == {"cpu": "2348"}


@pytest.mark.parametrize("scenario", [FULL, QUICK])
def test_jobs_are_valid_elastic_jobs(scenario: Scenario) -> None:
    """Bounds and spec are accepted by the rules that admission uses."""
    job = workload.elastic_job(scenario, "job-1")
    bounds = job_settings.bounds(job["metadata"]["annotations"])
    assert bounds == (scenario.min_trainers, scenario.max_trainers)
    job_spec.check_spec(JobView.parse(job))


@pytest.mark.parametrize("plain", [True, False])
def test_a_job_is_made_of_support_and_trainers(plain: bool) -> None:
    """Ten parameter servers, one master, and a Job, or a ReplicaSet where there is no EDL."""
    objects = workload.job_objects(FULL, "job-1", plain=plain)
    kinds = [item["kind"] for item in objects]
    assert kinds == ["ReplicaSet", "ReplicaSet", "ReplicaSet" if plain else "Job"]
    assert [item["spec"]["replicas"] for item in objects[:2]] == [10, 1]
    for item in objects[:2]:
        assert item["spec"]["template"]["metadata"]["labels"][LABEL_JOB] == "job-1"
        assert LABEL_ROLE in item["spec"]["selector"]["matchLabels"]


def test_plain_training_carries_its_own_priorities_and_edl_training_none() -> None:
    """The webhook gives EDL's pods their class; without EDL the user does."""
    plain = workload.job_objects(FULL, "job-1", plain=True)
    ours = workload.job_objects(FULL, "job-1", plain=False)
    class_names = {item["metadata"]["name"] for item in workload.plain_classes()}
    assert {_pod(item)["priorityClassName"] for item in plain} == class_names
    assert not any("priorityClassName" in _pod(item) for item in ours)


def _pod(item: workload.Manifest) -> workload.Manifest:
    pod_spec: workload.Manifest = item["spec"]["template"]["spec"]
    return pod_spec


def test_services_outrank_training() -> None:
    """Their class lies above zero, all training below."""
    assert workload.service_class()["value"] > 0
    assert all(item["value"] < 0 for item in workload.plain_classes())
    assert workload.services(FULL)["spec"]["replicas"] == 400
    assert [d["spec"]["replicas"] for d in workload.system(FULL)] == [50, 1]
    assert [item["metadata"]["name"] for item in workload.namespaces()] == ["services", "training"]


def test_a_job_without_pservers_has_a_master_only() -> None:
    """No empty ReplicaSet is made."""
    lean = replace(FULL, pservers=0)
    assert len(workload.support(lean, "job-1", plain=True)) == 1
