"""Parameter servers on a real control plane: what is made, told, replaced, spared and removed.

Nodes are simulated, so nothing is served here; containers of servers are in `test_servers_node`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from e2e import workload
from e2e.journey import Journey, World, journey, until, world
from e2e.workload import QUICK
from kube import request
from kube.errors import Forbidden, Invalid
from kube.request import CONFIGMAPS, JOBS, PODS, SERVICES
from policy.names import (
    ANNOTATION_CLAIM,
    ANNOTATION_MASTER,
    ANNOTATION_MASTER_HEARTBEAT,
    ANNOTATION_MASTER_STEPS,
    ANNOTATION_SERVER_CPU,
    ANNOTATION_SERVERS,
    Role,
)
from policy.snapshot import Phase, Pod
from runtime import clock

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

BACK_S = 8.0
"""From the deletion of a server's pod to another that runs under its name."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One cluster with EDL for all journeys of this file."""
    with world(tmp_path_factory.mktemp("servers")) as found:
        yield found


@pytest.fixture
def here(site: World, request: pytest.FixtureRequest) -> Iterator[Journey]:
    """A namespace of the journey's own."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_"))[:50].strip("-")
    with journey(site, name) as found:
        yield found


def _submit(
    here: Journey, low: int, high: int, annotations: Mapping[str, str] | None = None
) -> None:
    """An elastic Job with a master and two parameter servers, as a user would write it."""
    manifest = workload.elastic_job(replace(QUICK, min_trainers=low, max_trainers=high), "mnist")
    manifest["metadata"]["namespace"] = here.namespace
    manifest["metadata"]["annotations"] |= {
        ANNOTATION_MASTER: "true",
        ANNOTATION_SERVERS: "2",
        ANNOTATION_SERVER_CPU: "1",
        **(annotations or {}),
    }
    here.world.send(request.create(JOBS, here.namespace, manifest))


def _running(here: Journey, role: Role) -> list[Pod]:
    """Pods of the job that run and stay, by name."""
    found = here.trainers("mnist")
    pods = [pod for pod in found if pod.role is role and pod.phase is Phase.RUNNING]
    return sorted(pods, key=lambda pod: pod.name)


def _start(here: Journey, low: int = 2, high: int = 4) -> dict[int, Pod]:
    """The servers of a job that has all its trainers."""
    _submit(here, low, high)
    until("trainers run", lambda: len(_running(here, Role.TRAINER)), lambda n: n == high, 20)
    until("servers run", lambda: len(_running(here, Role.PSERVER)), lambda n: n == 2, 10)
    return {pod.server: pod for pod in _running(here, Role.PSERVER)}


def _back(here: Journey, before: Pod) -> Pod:
    """The pod that took over from one that is gone."""

    def others() -> list[Pod]:
        found = _running(here, Role.PSERVER)
        return [pod for pod in found if pod.server == before.server and pod.uid != before.uid]

    return until(f"server {before.server} is back", others, bool, 20)[0]


def _object(here: Journey, kind: request.Resource, name: str) -> Any:
    return here.world.send(request.get(kind, here.namespace, name))


def test_a_job_gets_servers_that_stay_where_they_are(here: Journey) -> None:
    """A pod and a Service for each, of the Job's, in the image that admission knows."""
    _start(here)
    uid = here.job("mnist").uid

    for number in range(2):
        name = f"mnist-ps-{number}"
        pod, service = _object(here, PODS, name), _object(here, SERVICES, name)
        (container,) = pod["spec"]["containers"]
        for thing in (pod, service):
            assert thing["metadata"]["ownerReferences"][0]["uid"] == uid
        assert service["spec"]["clusterIP"] not in ("", "None")
        assert container["image"] == "registry.invalid/edl"
        assert container["command"][3:7] == ["--index", str(number), "--of", "2"]
        assert pod["spec"]["priorityClassName"] == "edl-support"
        assert pod["spec"]["restartPolicy"] == "Always"


def test_trainers_are_told_of_servers_and_of_each_other(here: Journey) -> None:
    """As the API server stored it, after every other admission plugin."""
    _start(here)
    services = [_object(here, SERVICES, f"mnist-ps-{number}") for number in range(2)]
    wanted = ",".join(f"http://{service['spec']['clusterIP']}:8791" for service in services)

    for pod in _running(here, Role.TRAINER):
        found = _object(here, PODS, pod.name)
        entries = {e["name"]: e for e in found["spec"]["containers"][0]["env"]}
        assert entries["EDL_PARAMETER_SERVERS"]["value"] == wanted
        assert entries["EDL_MAX_TRAINERS"]["value"] == "4"
        assert entries["EDL_EXCHANGE_PORT"]["value"] == "8792"
        reference = entries["EDL_ADDRESS"]["valueFrom"]["fieldRef"]
        assert reference["fieldPath"] == "status.podIP"
        assert "edl.training/kept-environment" not in found["metadata"]["annotations"]


def test_a_master_is_started_as_the_job_says(here: Journey) -> None:
    """Most steps and heartbeat become flags of the sidecar."""
    said = {ANNOTATION_MASTER_STEPS: "500", ANNOTATION_MASTER_HEARTBEAT: "0.5"}
    _submit(here, 1, 1, said)
    until("a trainer runs", lambda: len(_running(here, Role.TRAINER)), lambda n: n == 1, 20)
    master = _object(here, PODS, "mnist-trainer-0")["spec"]["initContainers"][0]

    assert master["command"][-2:] == ["--max-steps=500", "--heartbeat-seconds=0.5"]


def test_a_server_that_is_deleted_comes_back(here: Journey) -> None:
    """The same name, the same address, and the other one is left alone."""
    before = _start(here)
    address = _object(here, SERVICES, "mnist-ps-1")["spec"]["clusterIP"]
    begun_s = clock.monotonic_s()
    here.world.send(request.delete(PODS, here.namespace, "mnist-ps-1"))
    after = _back(here, before[1])
    took_s = clock.monotonic_s() - begun_s
    print(f"a deleted parameter server runs again after {took_s:.1f} s")

    assert after.name == "mnist-ps-1"
    assert _object(here, SERVICES, "mnist-ps-1")["spec"]["clusterIP"] == address
    assert _object(here, PODS, "mnist-ps-0")["metadata"]["uid"] == before[0].uid
    assert took_s < BACK_S


def test_a_server_that_was_evicted_comes_back(here: Journey) -> None:
    """Its pod has ended and holds its name: it is deleted, and made anew."""
    before = _start(here)
    body = {"status": {"phase": "Failed", "reason": "Evicted"}}
    path = request.merge_patch(PODS, here.namespace, "mnist-ps-0", body, subresource="status")
    here.world.send(path)

    assert _back(here, before[0]).name == "mnist-ps-0"


def test_services_take_trainers_and_spare_servers(here: Journey) -> None:
    """A burst that leaves no room for surplus leaves the servers where they are."""
    before = _start(here, 2, 20)
    here.services(54)
    here.wait_services(54, 40)
    left = len(_running(here, Role.TRAINER))

    assert left < 20
    assert {pod.uid for pod in _running(here, Role.PSERVER)} == {p.uid for p in before.values()}
    assert not {pod.name for pod in before.values()} & here.world.pods.left(here.namespace)


def test_servers_end_with_the_job(here: Journey) -> None:
    """After its trainers, and before it is complete for long."""
    _start(here)
    body = {"data": {"outcome": "done"}}
    here.world.send(request.merge_patch(CONFIGMAPS, here.namespace, "mnist-master", body))
    seen: list[tuple[int, int]] = []

    def left() -> int:
        trainers = [p for p in here.world.pods.now(here.namespace) if p.role is Role.TRAINER]
        servers = _running(here, Role.PSERVER)
        seen.append((sum(not pod.terminal for pod in trainers), len(servers)))
        return len(servers)

    until("no server is left", left, lambda count: count == 0, 60)

    assert here.wait_condition("mnist", "Complete", 20) == "MasterSaysDone"
    assert all(servers == 2 for trainers, servers in seen if trainers)


def test_servers_that_admission_missed_are_told_of(here: Journey) -> None:
    """The event names who is away; they come by themselves as soon as it is back."""
    before = _start(here)
    here.world.edl.kill("webhook")
    here.world.send(request.delete(PODS, here.namespace, "mnist-ps-0"))
    until("an event", lambda: here.events("mnist", "ServersRefused"), bool, 15)
    here.world.edl.start("webhook")
    here.world.edl.wait_ready("webhook")

    (event,) = here.events("mnist", "ServersRefused")[:1]
    assert "EDL's webhook is away" in event["message"]
    assert _back(here, before[0]).name == "mnist-ps-0"


@pytest.mark.parametrize(
    ("annotations", "said"),
    [
        ({ANNOTATION_SERVERS: "0"}, "parameter-servers is 0: write a whole number from 1 to 64"),
        ({ANNOTATION_MASTER: "false"}, "parameter-servers needs a master"),
        ({ANNOTATION_SERVER_CPU: "fast"}, "parameter-server-cpu: cpu: 'fast' is not a quantity"),
        ({ANNOTATION_CLAIM: "My Claim"}, "checkpoint-claim is 'My Claim': write the name of a"),
        ({ANNOTATION_MASTER_STEPS: "-1"}, "master-max-steps is '-1'"),
    ],
    ids=["number", "master", "cpu", "claim", "steps"],
)
def test_wrong_wishes(here: Journey, annotations: dict[str, str], said: str) -> None:
    """Refused at the door, in one line that names the annotation."""
    with pytest.raises((Invalid, Forbidden), match=said):
        _submit(here, 1, 1, annotations)


def test_servers_cannot_change(here: Journey) -> None:
    """Pods that exist could not follow."""
    _submit(here, 1, 1)
    with pytest.raises((Invalid, Forbidden), match="cannot change once the Job exists"):
        here.edit("mnist", {"metadata": {"annotations": {ANNOTATION_SERVERS: "3"}}})
