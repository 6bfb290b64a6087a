"""Parameter servers on a real control plane: creation, environment, replacement and removal.

Nodes are simulated, so nothing is served here; containers of servers are in `test_servers_node`.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from e2e import workload
from e2e.environment import IsolatedNamespace
from e2e.waiting import until
from e2e.workload import QUICK
from kube import request
from kube.errors import Forbidden, Invalid
from kube.request import CONFIGMAPS, JOBS, PODS, SERVICES
from policy.cluster.snapshot import Phase, Pod
from policy.names import (
    ANNOTATION_CLAIM,
    ANNOTATION_MASTER,
    ANNOTATION_MASTER_HEARTBEAT,
    ANNOTATION_MASTER_STEPS,
    ANNOTATION_SERVER_CPU,
    ANNOTATION_SERVERS,
    Role,
)
from runtime import clock

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

BACK_S = 8.0
"""From the deletion of a server's pod to another that runs under its name."""


def _submit(
    namespace: IsolatedNamespace, low: int, high: int, annotations: Mapping[str, str] | None = None
) -> None:
    """An elastic Job with a master and two parameter servers, as a user would write it."""
    manifest = workload.elastic_job(replace(QUICK, min_trainers=low, max_trainers=high), "mnist")
    manifest["metadata"]["namespace"] = namespace.name
    manifest["metadata"]["annotations"] |= {
        ANNOTATION_MASTER: "true",
        ANNOTATION_SERVERS: "2",
        ANNOTATION_SERVER_CPU: "1",
        **(annotations or {}),
    }
    namespace.environment.send(request.create(JOBS, namespace.name, manifest))


def _running(namespace: IsolatedNamespace, role: Role) -> list[Pod]:
    """Pods of the job that run and stay, by name."""
    trainers = namespace.trainers("mnist")
    pods = [pod for pod in trainers if pod.role is role and pod.phase is Phase.RUNNING]
    return sorted(pods, key=lambda pod: pod.name)


def _start(namespace: IsolatedNamespace, low: int = 2, high: int = 4) -> dict[int, Pod]:
    """Returns the servers of a job that has all its trainers."""
    _submit(namespace, low, high)
    until("trainers run", lambda: len(_running(namespace, Role.TRAINER)), lambda n: n == high, 20)
    until("servers run", lambda: len(_running(namespace, Role.PSERVER)), lambda n: n == 2, 20)
    return {pod.server: pod for pod in _running(namespace, Role.PSERVER)}


def _back(namespace: IsolatedNamespace, before: Pod) -> Pod:
    """Returns the pod that took over from one that is gone; after refusals that takes as long as these lasted."""

    def others() -> list[Pod]:
        server_pods = _running(namespace, Role.PSERVER)
        return [pod for pod in server_pods if pod.server == before.server and pod.uid != before.uid]

    return until(f"server {before.server} is back", others, bool, 60)[0]


def _object(namespace: IsolatedNamespace, kind: request.Resource, name: str) -> Any:
    return namespace.environment.send(request.get(kind, namespace.name, name))


def test_a_job_gets_servers_that_stay_where_they_are(namespace: IsolatedNamespace) -> None:
    """A pod and a Service for each, of the Job's, in the image that admission knows."""
    _start(namespace)
    uid = namespace.job("mnist").uid

    for number in range(2):
        name = f"mnist-ps-{number}"
        pod, service = _object(namespace, PODS, name), _object(namespace, SERVICES, name)
        (container,) = pod["spec"]["containers"]
        for thing in (pod, service):
            assert thing["metadata"]["ownerReferences"][0]["uid"] == uid
        assert service["spec"]["clusterIP"] not in ("", "None")
        assert container["image"] == "registry.invalid/edl"
        assert container["command"][3:7] == ["--index", str(number), "--of", "2"]
        assert pod["spec"]["priorityClassName"] == "edl-support"
        assert pod["spec"]["restartPolicy"] == "Always"


def test_trainers_have_the_addresses_of_servers(namespace: IsolatedNamespace) -> None:
    """As the API server stored it, after every other admission plugin."""
    _start(namespace)
    services = [_object(namespace, SERVICES, f"mnist-ps-{number}") for number in range(2)]
    server_urls = ",".join(f"http://{service['spec']['clusterIP']}:8791" for service in services)

    for pod in _running(namespace, Role.TRAINER):
        stored_pod = _object(namespace, PODS, pod.name)
        entries = {e["name"]: e for e in stored_pod["spec"]["containers"][0]["env"]}
        assert entries["EDL_PARAMETER_SERVERS"]["value"] == server_urls
        assert entries["EDL_MAX_TRAINERS"]["value"] == "4"
        assert entries["EDL_EXCHANGE_PORT"]["value"] == "8792"
        reference = entries["EDL_ADDRESS"]["valueFrom"]["fieldRef"]
        assert reference["fieldPath"] == "status.podIP"
        assert "edl.training/kept-environment" not in stored_pod["metadata"]["annotations"]


def test_a_master_is_started_as_the_job_says(namespace: IsolatedNamespace) -> None:
    """Most steps and heartbeat become flags of the sidecar."""
    annotations = {ANNOTATION_MASTER_STEPS: "500", ANNOTATION_MASTER_HEARTBEAT: "0.5"}
    _submit(namespace, 1, 1, annotations)
    until("a trainer runs", lambda: len(_running(namespace, Role.TRAINER)), lambda n: n == 1, 20)
    master = _object(namespace, PODS, "mnist-trainer-0")["spec"]["initContainers"][0]

    assert master["command"][-2:] == ["--max-steps=500", "--heartbeat-seconds=0.5"]


def test_a_server_that_is_deleted_comes_back(namespace: IsolatedNamespace) -> None:
    """The same name, the same address, and the other one is left alone."""
    before = _start(namespace)
    address = _object(namespace, SERVICES, "mnist-ps-1")["spec"]["clusterIP"]
    begun_s = clock.monotonic_s()
    namespace.environment.send(request.delete(PODS, namespace.name, "mnist-ps-1"))
    after = _back(namespace, before[1])
    took_s = clock.monotonic_s() - begun_s
    print(f"a deleted parameter server runs again after {took_s:.1f} s")

    assert after.name == "mnist-ps-1"
    assert _object(namespace, SERVICES, "mnist-ps-1")["spec"]["clusterIP"] == address
    assert _object(namespace, PODS, "mnist-ps-0")["metadata"]["uid"] == before[0].uid
    assert took_s < BACK_S


def test_a_server_that_was_evicted_comes_back(namespace: IsolatedNamespace) -> None:
    """Its pod has ended and holds its name: it is deleted, and created again."""
    before = _start(namespace)
    body = {"status": {"phase": "Failed", "reason": "Evicted"}}
    path = request.merge_patch(PODS, namespace.name, "mnist-ps-0", body, subresource="status")
    namespace.environment.send(path)

    assert _back(namespace, before[0]).name == "mnist-ps-0"


def test_services_take_trainers_and_spare_servers(namespace: IsolatedNamespace) -> None:
    """A burst that leaves no room for surplus leaves the servers where they are."""
    before = _start(namespace, 2, 20)
    namespace.services(54)
    namespace.wait_services(54, 40)
    remaining = len(_running(namespace, Role.TRAINER))

    assert remaining < 20
    assert {pod.uid for pod in _running(namespace, Role.PSERVER)} == {
        p.uid for p in before.values()
    }
    assert not {pod.name for pod in before.values()} & namespace.environment.pods.stopped_trainers(
        namespace.name
    )


def test_servers_end_with_the_job(namespace: IsolatedNamespace) -> None:
    """After its trainers, and before it is complete for long."""
    _start(namespace)
    body = {"data": {"outcome": "done"}}
    namespace.environment.send(
        request.merge_patch(CONFIGMAPS, namespace.name, "mnist-edl-master", body)
    )
    counts: list[tuple[int, int]] = []

    def remaining_pods() -> int:
        pods = namespace.environment.pods.now(namespace.name)  # both of one moment
        trainers = sum(pod.role is Role.TRAINER and not pod.terminal for pod in pods)
        servers = sum(
            pod.role is Role.PSERVER and pod.phase is Phase.RUNNING and not pod.deleting
            for pod in pods
        )
        counts.append((trainers, servers))
        return servers

    until("no server is left", remaining_pods, lambda count: count == 0, 60)

    assert namespace.wait_condition("mnist", "Complete", 20) == "MasterSaysDone"
    assert all(servers == 2 for trainers, servers in counts if trainers)


def test_servers_that_admission_missed_are_reported(namespace: IsolatedNamespace) -> None:
    """The event names what is unavailable; the servers are created as soon as it is back."""
    before = _start(namespace)
    namespace.environment.control_plane.kill("webhook")
    namespace.environment.send(request.delete(PODS, namespace.name, "mnist-ps-0"))
    until("an event", lambda: namespace.events("mnist", "ServersRefused"), bool, 30)
    namespace.environment.control_plane.start("webhook")
    namespace.environment.control_plane.wait_ready("webhook")

    (event,) = namespace.events("mnist", "ServersRefused")[:1]
    assert "EDL's webhook was unavailable" in event["message"]
    assert _back(namespace, before[0]).name == "mnist-ps-0"


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        ({ANNOTATION_SERVERS: "0"}, "parameter-servers is 0: write a whole number from 1 to 64"),
        ({ANNOTATION_MASTER: "false"}, "parameter-servers needs a master"),
        ({ANNOTATION_SERVER_CPU: "fast"}, "parameter-server-cpu: cpu: 'fast' is not a quantity"),
        ({ANNOTATION_CLAIM: "My Claim"}, "checkpoint-claim is 'My Claim': write the name of a"),
        ({ANNOTATION_MASTER_STEPS: "-1"}, "master-max-steps is '-1'"),
    ],
    ids=["number", "master", "cpu", "claim", "steps"],
)
def test_wrong_requests_for_servers_are_refused(
    namespace: IsolatedNamespace, annotations: dict[str, str], message: str
) -> None:
    """Refused at the door, in one line that names the annotation."""
    with pytest.raises((Invalid, Forbidden), match=message):
        _submit(namespace, 1, 1, annotations)


def test_servers_cannot_change(namespace: IsolatedNamespace) -> None:
    """Pods that exist could not follow."""
    _submit(namespace, 1, 1)
    with pytest.raises((Invalid, Forbidden), match="cannot change, because"):
        namespace.edit("mnist", {"metadata": {"annotations": {ANNOTATION_SERVERS: "3"}}})
