"""Masters on a real control plane: how they are created, patched, moved and removed.

Nodes are simulated, so no master serves here and the last word is written as one would write it.
"""

import base64
import contextlib
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import orjson
import pytest

from e2e.environment import Environment, IsolatedNamespace
from e2e.waiting import until
from kube import request
from kube.errors import Forbidden, Invalid, NotFound
from kube.request import (
    CONFIGMAPS,
    JOBS,
    NODES,
    PODS,
    ROLEBINDINGS,
    ROLES,
    SECRETS,
    SERVICES,
    Resource,
)
from policy.cluster.snapshot import Pod
from policy.names import ANNOTATION_MASTER, ANNOTATION_MASTER_ADDRESS, LABEL_JOB, LABEL_MASTER
from runtime import clock

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

OBJECTS = (CONFIGMAPS, SECRETS, ROLES, ROLEBINDINGS, SERVICES)
REVIEWS = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)
NAME = "mnist-edl-master"
HOLDER = "holder"
WAIT_S = 30.0
"""Ends a hang."""
MOVES_S = 15.0
"""Of a master to another pod: seconds, on a busy machine too."""


def _object(namespace: IsolatedNamespace, kind: Resource, name: str = NAME) -> Any:
    return namespace.environment.send(request.get(kind, namespace.name, name))


def _master_hosts(namespace: IsolatedNamespace) -> list[Pod]:
    return [pod for pod in namespace.trainers("mnist") if pod.master]


def _containers(pod: Any) -> dict[str, Any]:
    spec = pod["spec"]
    return {c["name"]: c for c in (*spec.get("initContainers", ()), *spec["containers"])}


def _may(namespace: IsolatedNamespace, verb: str, name: str) -> bool:
    """Returns whether the pods' service account may do that to a ConfigMap."""
    attributes = {"namespace": namespace.name, "verb": verb, "resource": "configmaps", "name": name}
    user = f"system:serviceaccount:{namespace.name}:default"
    body = {"metadata": {}, "spec": {"user": user, "resourceAttributes": attributes}}
    return bool(
        namespace.environment.send(request.create(REVIEWS, None, body))["status"]["allowed"]
    )


def test_a_job_gets_what_its_master_needs(namespace: IsolatedNamespace) -> None:
    """With the reconciler's own rights: objects, and a role that opens one ConfigMap only."""
    namespace.submit("mnist", low=2, high=4, master="true")
    namespace.wait_running("mnist", 4, WAIT_S)
    uid = namespace.job("mnist").uid

    for kind in OBJECTS:
        assert _object(namespace, kind)["metadata"]["ownerReferences"][0]["uid"] == uid
    assert len(base64.b64decode(_object(namespace, SECRETS)["data"]["token"])) >= 32
    may = {
        (verb, name)
        for verb in ("get", "update", "delete", "list")
        for name in (NAME, "other")
        if _may(namespace, verb, name)
    }
    assert may == {("get", NAME), ("update", NAME)}


def test_one_pod_hosts_the_master_and_all_have_its_address(namespace: IsolatedNamespace) -> None:
    """As the API server stored them, after every other admission plugin."""
    namespace.submit("mnist", low=2, high=4, master="true")
    namespace.wait_running("mnist", 4, WAIT_S)
    (host,) = _master_hosts(namespace)
    pods = [_object(namespace, PODS, pod.name) for pod in namespace.trainers("mnist")]
    address = f"http://{_object(namespace, SERVICES)['spec']['clusterIP']}:8790"

    assert host.name == "mnist-trainer-0"
    for pod in pods:
        containers = _containers(pod)
        assert ("edl-master" in containers) == (pod["metadata"]["name"] == host.name)
        variables = {e["name"]: e for e in pod["spec"]["containers"][0]["env"]}
        assert variables["EDL_MASTER"]["value"] == address
        assert (
            variables["EDL_TRAINER"]["value"]
            == f"trainer-{pod['metadata']['labels']['edl.training/trainer-id']}"
        )
        assert pod["metadata"]["annotations"][ANNOTATION_MASTER_ADDRESS] == address
    sidecar = _containers(_object(namespace, PODS, host.name))["edl-master"]
    assert sidecar["restartPolicy"] == "Always"
    access = [
        m["name"] for m in sidecar["volumeMounts"] if m["mountPath"].endswith("serviceaccount")
    ]
    assert access == ["edl-master-access"]
    assert host.requests["cpu"] == namespace.job("mnist").requests["cpu"] + 100


def test_the_master_moves_with_its_pod(namespace: IsolatedNamespace) -> None:
    """Another trainer carries it seconds after the pod is deleted, and never two that stay."""
    namespace.submit("mnist", low=2, high=2, master="true")
    namespace.wait_running("mnist", 2, WAIT_S)
    (first,) = _master_hosts(namespace)
    begun_s = clock.monotonic_s()
    namespace.environment.send(request.delete(PODS, namespace.name, first.name))
    trainer_ids: set[int] = set()

    def moved() -> list[str]:
        hosts = _master_hosts(namespace)
        trainer_ids.add(len(hosts))
        return [pod.name for pod in hosts if pod.name != first.name and pod.address]

    until("another carries it", moved, bool, MOVES_S)
    took_s = clock.monotonic_s() - begun_s
    print(f"the master's next pod runs {took_s:.1f} s after the deletion of the one before")
    namespace.wait_running("mnist", 2, WAIT_S)

    assert max(trainer_ids) == 1


@pytest.fixture
def one_node(environment: Environment) -> Iterator[str]:
    """The only node, of 18 CPU, that takes pods during the test."""
    pages = environment.send(request.list_page(NODES, limit=0))["items"]
    names = sorted(item["metadata"]["name"] for item in pages)
    for name in names[1:]:
        environment.send(request.merge_patch(NODES, None, name, {"spec": {"unschedulable": True}}))
    time.sleep(1.0)  # until kube-scheduler has heard of it, which nothing shows
    yield names[0]
    for name in names[1:]:
        environment.send(request.merge_patch(NODES, None, name, {"spec": {"unschedulable": None}}))


def _occupy(namespace: IsolatedNamespace, node: str, cpu: str) -> None:
    """A pod that holds so much of a node, as if kube-scheduler had put it there."""
    resources = {"requests": {"cpu": cpu}}
    container = {"name": "main", "image": "registry.invalid/x", "resources": resources}
    spec = {"nodeName": node, "containers": [container]}
    namespace.environment.send(
        request.create(PODS, namespace.name, {"metadata": {"name": HOLDER}, "spec": spec})
    )


def test_a_trainer_gives_way_where_there_is_no_room(
    namespace: IsolatedNamespace, one_node: str
) -> None:
    """Somebody else took the room of the host: another trainer goes for the master."""
    namespace.submit("mnist", low=3, high=3, master="true")
    namespace.wait_running("mnist", 3, WAIT_S)
    (first,) = _master_hosts(namespace)
    places = {pod.node for pod in namespace.trainers("mnist")}
    try:
        _occupy(namespace, one_node, "5.4")  # before a successor of the host is there
        namespace.environment.send(request.delete(PODS, namespace.name, first.name))
        until(
            "another carries it, and runs",
            lambda: [
                p.name for p in _master_hosts(namespace) if p.address and p.name != first.name
            ],
            bool,
            2 * WAIT_S,
        )
        until("one was let go", lambda: namespace.job("mnist").accounting.released, bool, WAIT_S)
    finally:
        with contextlib.suppress(NotFound):
            namespace.environment.send(request.delete(PODS, namespace.name, HOLDER))

    assert places == {one_node}
    assert namespace.job("mnist").accounting.released == 1


def test_the_job_ends_as_its_master_reports(namespace: IsolatedNamespace) -> None:
    """Read from the ConfigMap, since no master answers here; trainers are removed."""
    namespace.submit("mnist", low=2, high=4, master="true")
    namespace.wait_running("mnist", 4, WAIT_S)
    body = {"data": {"outcome": "done"}}
    namespace.environment.send(request.merge_patch(CONFIGMAPS, namespace.name, NAME, body))

    assert namespace.wait_condition("mnist", "Complete", 40) == "MasterSaysDone"
    until("nothing runs", lambda: namespace.running("mnist"), lambda n: n == 0, WAIT_S)


def test_a_master_may_give_up_its_job(namespace: IsolatedNamespace) -> None:
    """The API server takes the Failed condition, with the master's reason as its message."""
    namespace.submit("mnist", low=1, high=2, master="true")
    namespace.wait_running("mnist", 2, WAIT_S)
    body = {"data": {"outcome": "failed: too many tasks were dropped"}}
    namespace.environment.send(request.merge_patch(CONFIGMAPS, namespace.name, NAME, body))

    assert namespace.wait_condition("mnist", "Failed", 40) == "MasterSaysFailed"
    messages = {c.type: c.message for c in namespace.job("mnist").status.conditions}
    assert messages["Failed"] == "the master reported failure: too many tasks were dropped"


def test_trainers_that_end_early_come_back(namespace: IsolatedNamespace) -> None:
    """Exit code 0 does not end the job before the master reports done."""
    namespace.submit(
        "mnist", low=2, high=2, master="true", pod_annotations={"edl.training/kwok-run-time": "3s"}
    )

    def succeeded() -> int:
        return namespace.job("mnist").accounting.succeeded

    until("two have ended", succeeded, lambda n: n >= 2, WAIT_S)
    until("others are made", lambda: namespace.job("mnist").accounting.next_id, lambda n: n > 2, 60)

    assert not namespace.job("mnist").over


def test_nothing_is_left_when_the_job_goes(namespace: IsolatedNamespace) -> None:
    """The garbage collector takes all that the Job owned."""
    namespace.submit("mnist", low=1, high=1, master="true")
    namespace.wait_running("mnist", 1, WAIT_S)
    namespace.environment.send(request.delete(JOBS, namespace.name, "mnist"))

    def remaining_objects() -> list[str]:
        remaining = []
        for kind in OBJECTS:
            try:
                remaining.append(str(_object(namespace, kind)["kind"]))
            except NotFound:
                continue
        return remaining

    until("all of it is gone", remaining_objects, lambda kinds: not kinds, WAIT_S)


def test_a_job_made_again_under_its_name_gets_its_own(namespace: IsolatedNamespace) -> None:
    """Objects of the previous job are being deleted; no trainer gets their address."""
    namespace.submit("mnist", low=1, high=1, master="true")
    namespace.wait_running("mnist", 1, WAIT_S)
    before = _object(namespace, SERVICES)["metadata"]["uid"]
    namespace.environment.send(request.delete(JOBS, namespace.name, "mnist"))
    namespace.submit("mnist", low=1, high=1, master="true")
    uid = namespace.job("mnist").uid
    until(
        "a trainer of the new Job runs",
        lambda: [pod.owner_uid for pod in namespace.trainers("mnist") if pod.address],
        lambda owners: owners == [uid],
        2 * WAIT_S,
    )

    service = _object(namespace, SERVICES)
    assert service["metadata"]["uid"] != before
    assert service["metadata"]["ownerReferences"][0]["uid"] == uid


def test_a_dry_run_shows_the_sidecar(namespace: IsolatedNamespace) -> None:
    """A pod of role master may request it by label, whichever client creates it."""
    labels = {LABEL_JOB: "mnist", "edl.training/role": "master", LABEL_MASTER: "true"}
    pod = {
        "metadata": {"name": "own-master", "labels": labels},
        "spec": {"containers": [{"name": "main", "image": "registry.invalid/x"}]},
    }
    dry_run = replace(request.create(PODS, namespace.name, pod), query=(("dryRun", "All"),))
    created = orjson.loads(namespace.environment.api.send(dry_run))

    assert "edl-master" in _containers(created)


def test_a_request_for_a_master_is_checked_at_admission(namespace: IsolatedNamespace) -> None:
    """What is neither true nor false, and a request that comes too late."""
    with pytest.raises((Invalid, Forbidden), match='write "true" for a master'):
        namespace.submit("mnist", low=1, high=1, master="yes")
    namespace.submit("mnist", low=1, high=1)
    with pytest.raises((Invalid, Forbidden), match="cannot change, because"):
        namespace.edit("mnist", {"metadata": {"annotations": {ANNOTATION_MASTER: "true"}}})
