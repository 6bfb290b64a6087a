"""The least that the reconciler's account needs: the API server notes all that it asks for in a day of its life.

`test_in_cluster.py` does the same for webhook and extender.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e import rights, scheduling, workload
from e2e.environment import Environment, IsolatedNamespace, running_environment
from e2e.scheduling import SchedulingMode
from e2e.waiting import until
from e2e.workload import QUICK
from kube import record_log, request
from kube.errors import NotFound
from kube.request import (
    CONFIGMAPS,
    DECISIONLOGS,
    EVENTS,
    JOBS,
    PODDISRUPTIONBUDGETS,
    PODS,
    TRAININGJOBS,
)
from policy.names import (
    ANNOTATION_MASTER,
    ANNOTATION_SERVER_CPU,
    ANNOTATION_SERVERS,
    SCHEDULING_CONFIGMAP,
    SYSTEM_NAMESPACE,
)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

ACCOUNT = "edl-reconciler"
EXAMPLE = Path(__file__).parents[1] / "examples/training-job.yaml"
UNUSED = {
    "edl-reconciler: get jobs.batch in any namespace": "a Job that the watch lacks: tests/reconciler/test_training_job_faults.py",
    "edl-reconciler: patch pods in any namespace": "of a job whose master answers: e2e/test_node_master.py",
    "edl-reconciler: update configmaps in any namespace": "to grant it to a job's pods, docs/decisions/0027",
    "edl-reconciler: update jobs/finalizers.batch in any namespace": "admission asks for it, and notes nothing",
    "edl-reconciler: update trainingjobs/finalizers.edl.training in any namespace": "as above",
}
"""Rights that this journey does not always show, and why they are there."""
_WAIT_S = 30.0


@pytest.fixture(scope="module")
def audit_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The audit log of the API server."""
    return tmp_path_factory.mktemp("audit")


@pytest.fixture(scope="module")
def environment(
    tmp_path_factory: pytest.TempPathFactory, audit_directory: Path
) -> Iterator[Environment]:
    """A cluster that notes all requests of EDL, and that guards owner references."""
    guard = "--enable-admission-plugins=OwnerReferencesPermissionEnforcement"
    flags = (*rights.audit_flags(audit_directory), guard)
    directory = tmp_path_factory.mktemp("environment")
    with running_environment(directory, apiserver_args=flags) as prepared:
        yield prepared


def _job_with_all(namespace: IsolatedNamespace) -> None:
    """A Job with master and parameter servers; a stranger has the name of its first trainer."""
    manifest = workload.elastic_job(replace(QUICK, min_trainers=2, max_trainers=6), "mnist")
    manifest["metadata"]["namespace"] = namespace.name
    manifest["metadata"]["annotations"] |= {
        ANNOTATION_MASTER: "true",
        ANNOTATION_SERVERS: "1",
        ANNOTATION_SERVER_CPU: "1",
    }
    container = {"name": "main", "image": "registry.invalid/stranger"}
    stranger = {"metadata": {"name": "mnist-trainer-0"}, "spec": {"containers": [container]}}
    namespace.environment.send(request.create(PODS, namespace.name, stranger))
    namespace.environment.send(request.create(JOBS, namespace.name, manifest))


def _training_job(namespace: IsolatedNamespace) -> None:
    """A TrainingJob that grows, ends and is removed."""
    environment = namespace.environment
    body: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    del body["spec"]["master"]
    body["spec"]["trainer"] |= {"min": 1, "max": 1}
    body["spec"]["ttlSecondsAfterFinished"] = 1
    environment.send(request.create(TRAININGJOBS, namespace.name, body))
    namespace.wait_running("digits", 1, _WAIT_S)
    larger = {"spec": {"trainer": {"max": 2}}}
    environment.send(request.merge_patch(TRAININGJOBS, namespace.name, "digits", larger))
    namespace.wait_running("digits", 2, _WAIT_S)
    ended = {"status": {"phase": "Succeeded"}}
    for pod in namespace.trainers("digits"):
        patch = request.merge_patch(PODS, namespace.name, pod.name, ended, subresource="status")
        environment.send(patch)
    until("it is gone", lambda: _is_there(namespace), lambda is_there: not is_there, 2 * _WAIT_S)


def _ids(namespace: IsolatedNamespace) -> set[int]:
    """Ids of the existing trainers; -1 for the stranger, which has none."""
    return {pod.trainer_id for pod in namespace.trainers("mnist")} | {-1}


def _is_there(namespace: IsolatedNamespace) -> bool:
    try:
        namespace.environment.send(request.get(TRAININGJOBS, namespace.name, "digits"))
    except NotFound:
        return False
    return True


def _invalid_policy(environment: Environment) -> None:
    """A policy that got past the webhook, until its event is there."""
    policy = environment.policy
    environment.control_plane.kill("webhook")
    for text in ("nonsense: 1", policy):
        environment.set_policy(text)
        until("an event", lambda: _policy_events(environment), bool, _WAIT_S)
    environment.restore()


def _policy_events(environment: Environment) -> list[str]:
    page = environment.send(request.list_page(EVENTS, SYSTEM_NAMESPACE))
    return [event["message"] for event in page["items"] if event["reason"] == "PolicyInvalid"]


def _restarted(environment: Environment) -> None:
    """Another reconciler finds all objects, and what was known of another scheduler."""
    other = {"data": {"scheduler": "another"}}
    patch = request.merge_patch(CONFIGMAPS, SYSTEM_NAMESPACE, SCHEDULING_CONFIGMAP, other)
    environment.control_plane.kill("reconciler")
    environment.send(patch)
    environment.restore()
    get = request.get(CONFIGMAPS, SYSTEM_NAMESPACE, SCHEDULING_CONFIGMAP)
    until(
        "the scheduler is known again",
        lambda: environment.send(get)["data"]["scheduler"],
        lambda name: name != "another",
        _WAIT_S,
    )


def _old_records(environment: Environment, namespace: str) -> None:
    """A segment of the decision log from long ago, which is older than any is kept."""
    labels = {record_log.LABEL_LOG: record_log.HISTORY}
    metadata = {"name": "edl-0000000000001-00000", "labels": labels}
    body = {"metadata": metadata, **record_log.encode([b"{}"], 1.0, 2.0)}
    environment.send(request.create(DECISIONLOGS, namespace, body))


def _budgets(namespace: IsolatedNamespace) -> set[Any]:
    page = namespace.environment.send(request.list_page(PODDISRUPTIONBUDGETS, namespace.name))
    return {item["spec"].get("minAvailable") for item in page["items"]}


def test_the_reconciler_has_no_right_too_few_and_none_too_many(
    environment: Environment, namespace: IsolatedNamespace, audit_directory: Path
) -> None:
    """Jobs with all that belongs to them, a burst, a restart, a wrong policy: no 403, and no rule unused."""
    _job_with_all(namespace)
    until(
        "trainers beside the stranger", lambda: _ids(namespace), lambda ids: max(ids) > 0, _WAIT_S
    )
    environment.send(request.delete(PODS, namespace.name, "mnist-trainer-0"))  # it has no owner
    until("it has grown", lambda: namespace.running("mnist"), lambda n: n >= 6, _WAIT_S)
    before = until("it has a budget", lambda: _budgets(namespace), bool, _WAIT_S)
    namespace.edit("mnist", {"metadata": {"annotations": {"edl.training/min-trainers": "3"}}})
    until("its budget follows", lambda: _budgets(namespace), lambda now: now != before, _WAIT_S)
    for name in (namespace.name, SYSTEM_NAMESPACE):
        _old_records(environment, name)
    _restarted(environment)
    _training_job(namespace)
    _invalid_policy(environment)
    namespace.edit("mnist", {"metadata": {"annotations": {"edl.training/max-trainers": "4"}}})
    until("it shrinks", lambda: namespace.running("mnist"), lambda n: n <= 5, _WAIT_S)
    namespace.edit("mnist", {"spec": {"suspend": True}})
    until("it is suspended", lambda: namespace.running("mnist"), lambda n: n == 0, _WAIT_S)
    granted = rights.granted(scheduling.manifests(SchedulingMode.EXTENDER))
    of_reconciler = {right for right in granted if right.account == ACCOUNT}
    assert set(UNUSED) <= {str(right) for right in of_reconciler}

    def unused() -> set[str]:
        """Records are written some seconds after what they tell."""
        return {str(right) for right in rights.unused(of_reconciler, _audited(audit_directory))}

    # Some of UNUSED are used where the watch is late.
    until("all other rights are used", unused, lambda names: names <= set(UNUSED), 2 * _WAIT_S)

    assert {str(right) for right in rights.refused(_audited(audit_directory))} == set()


def _audited(directory: Path) -> list[rights.AuditedRequest]:
    return rights.read(rights.audit_log(directory).read_text(encoding="utf-8"))
