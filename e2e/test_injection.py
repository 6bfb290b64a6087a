"""Masters beside trainers, on a real control plane: what is made, patched, moved and removed.

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

from e2e.journey import Journey, World, journey, until, world
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
from policy.names import ANNOTATION_MASTER, ANNOTATION_MASTER_ADDRESS, LABEL_JOB, LABEL_MASTER
from policy.snapshot import Pod
from runtime import clock

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

OBJECTS = (CONFIGMAPS, SECRETS, ROLES, ROLEBINDINGS, SERVICES)
REVIEWS = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)
NAME = "mnist-master"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One cluster with EDL for all journeys of this file."""
    with world(tmp_path_factory.mktemp("injection")) as found:
        yield found


@pytest.fixture
def here(site: World, request: pytest.FixtureRequest) -> Iterator[Journey]:
    """A namespace of the journey's own."""
    name = request.node.name.removeprefix("test_").replace("_", "-")[:50].strip("-")
    with journey(site, name) as found:
        yield found


def _object(here: Journey, kind: Resource, name: str = NAME) -> Any:
    return here.world.send(request.get(kind, here.namespace, name))


def _carriers(here: Journey) -> list[Pod]:
    return [pod for pod in here.trainers("mnist") if pod.master]


def _containers(pod: Any) -> dict[str, Any]:
    spec = pod["spec"]
    return {c["name"]: c for c in (*spec.get("initContainers", ()), *spec["containers"])}


def _may(here: Journey, verb: str, name: str) -> bool:
    """Whether the pods' service account may do that to a ConfigMap."""
    attributes = {"namespace": here.namespace, "verb": verb, "resource": "configmaps", "name": name}
    user = f"system:serviceaccount:{here.namespace}:default"
    body = {"metadata": {}, "spec": {"user": user, "resourceAttributes": attributes}}
    return bool(here.world.send(request.create(REVIEWS, None, body))["status"]["allowed"])


def test_a_job_gets_what_its_master_needs(here: Journey) -> None:
    """With the reconciler's own rights: objects, and a role that opens one ConfigMap only."""
    here.submit("mnist", low=2, high=4, master="true")
    here.wait_running("mnist", 4, 8)
    uid = here.job("mnist").uid

    for kind in OBJECTS:
        assert _object(here, kind)["metadata"]["ownerReferences"][0]["uid"] == uid
    assert len(base64.b64decode(_object(here, SECRETS)["data"]["token"])) >= 32
    may = {
        (verb, name)
        for verb in ("get", "update", "delete", "list")
        for name in (NAME, "other")
        if _may(here, verb, name)
    }
    assert may == {("get", NAME), ("update", NAME)}


def test_one_pod_carries_the_master_and_all_are_told(here: Journey) -> None:
    """As the API server stored them, after every other admission plugin."""
    here.submit("mnist", low=2, high=4, master="true")
    here.wait_running("mnist", 4, 8)
    (carrier,) = _carriers(here)
    pods = [_object(here, PODS, pod.name) for pod in here.trainers("mnist")]
    address = f"http://{_object(here, SERVICES)['spec']['clusterIP']}:8790"

    assert carrier.name == "mnist-trainer-0"
    for pod in pods:
        found = _containers(pod)
        assert ("edl-master" in found) == (pod["metadata"]["name"] == carrier.name)
        variables = {e["name"]: e for e in pod["spec"]["containers"][0]["env"]}
        assert variables["EDL_MASTER"]["value"] == address
        assert (
            variables["EDL_TRAINER"]["value"]
            == f"trainer-{pod['metadata']['labels']['edl.training/trainer-id']}"
        )
        assert pod["metadata"]["annotations"][ANNOTATION_MASTER_ADDRESS] == address
    sidecar = _containers(_object(here, PODS, carrier.name))["edl-master"]
    assert sidecar["restartPolicy"] == "Always"
    access = [
        m["name"] for m in sidecar["volumeMounts"] if m["mountPath"].endswith("serviceaccount")
    ]
    assert access == ["edl-master-access"]
    assert carrier.requests["cpu"] == here.job("mnist").requests["cpu"] + 100


def test_the_master_moves_with_its_pod(here: Journey) -> None:
    """Another trainer carries it seconds after the pod is deleted, and never two that stay."""
    here.submit("mnist", low=2, high=2, master="true")
    here.wait_running("mnist", 2, 8)
    (first,) = _carriers(here)
    begun_s = clock.monotonic_s()
    here.world.send(request.delete(PODS, here.namespace, first.name))
    seen: set[int] = set()

    def moved() -> list[str]:
        found = _carriers(here)
        seen.add(len(found))
        return [pod.name for pod in found if pod.name != first.name and pod.address]

    until("another carries it", moved, bool, 8)
    took_s = clock.monotonic_s() - begun_s
    print(f"the master's next pod runs {took_s:.1f} s after the deletion of the one before")
    here.wait_running("mnist", 2, 8)

    assert max(seen) == 1
    assert took_s < 8.0


@pytest.fixture
def one_node(site: World) -> Iterator[str]:
    """The only node, of 18 CPU, that takes pods during the journey."""
    pages = site.send(request.list_page(NODES, limit=0))["items"]
    names = sorted(item["metadata"]["name"] for item in pages)
    for name in names[1:]:
        site.send(request.merge_patch(NODES, None, name, {"spec": {"unschedulable": True}}))
    time.sleep(1.0)  # until kube-scheduler has heard of it, which nothing shows
    yield names[0]
    for name in names[1:]:
        site.send(request.merge_patch(NODES, None, name, {"spec": {"unschedulable": None}}))


def _occupy(here: Journey, node: str, cpu: str) -> None:
    """A pod that holds so much of a node, as if kube-scheduler had put it there."""
    resources = {"requests": {"cpu": cpu}}
    container = {"name": "main", "image": "registry.invalid/x", "resources": resources}
    spec = {"nodeName": node, "containers": [container]}
    name = f"holder-{cpu.replace('.', '-')}"
    here.world.send(
        request.create(PODS, here.namespace, {"metadata": {"name": name}, "spec": spec})
    )


def test_a_trainer_gives_way_where_there_is_no_room(here: Journey, one_node: str) -> None:
    """Somebody else took the room of the carrier: another trainer goes for the master."""
    here.submit("mnist", low=3, high=3, master="true")
    here.wait_running("mnist", 3, 8)
    (first,) = _carriers(here)
    places = {pod.node for pod in here.trainers("mnist")}
    try:
        _occupy(here, one_node, "2.4")
        here.world.send(request.delete(PODS, here.namespace, first.name))
        _occupy(here, one_node, "3")
        until(
            "another carries it, and runs",
            lambda: [p.name for p in _carriers(here) if p.address and p.name != first.name],
            bool,
            15,
        )
        until("one was let go", lambda: here.job("mnist").books.released, bool, 5)
    finally:
        for number in ("2-4", "3"):
            with contextlib.suppress(NotFound):
                here.world.send(request.delete(PODS, here.namespace, f"holder-{number}"))

    assert places == {one_node}
    assert here.job("mnist").books.released == 1


def test_the_end_is_the_masters_last_word(here: Journey) -> None:
    """Read from the ConfigMap, since nobody answers here; trainers are removed."""
    here.submit("mnist", low=2, high=4, master="true")
    here.wait_running("mnist", 4, 8)
    body = {"data": {"outcome": "done"}}
    here.world.send(request.merge_patch(CONFIGMAPS, here.namespace, NAME, body))

    assert here.wait_condition("mnist", "Complete", 40) == "MasterSaysDone"
    until("nothing runs", lambda: here.running("mnist"), lambda n: n == 0, 5)


def test_a_master_may_give_up_its_job(here: Journey) -> None:
    """The API server takes the Failed condition, with the master's reason as its message."""
    here.submit("mnist", low=1, high=2, master="true")
    here.wait_running("mnist", 2, 8)
    body = {"data": {"outcome": "failed: too many tasks were dropped"}}
    here.world.send(request.merge_patch(CONFIGMAPS, here.namespace, NAME, body))

    assert here.wait_condition("mnist", "Failed", 40) == "MasterSaysFailed"
    messages = {c.type: c.message for c in here.job("mnist").status.conditions}
    assert messages["Failed"] == "the master gave up: too many tasks were dropped"


def test_trainers_that_end_early_come_back(here: Journey) -> None:
    """Exit code 0 is no end while the master has not said so."""
    here.submit("mnist", low=2, high=2, master="true", lives={"edl.training/kwok-run-time": "3s"})
    here.wait_running("mnist", 2, 8)
    until("both have ended", lambda: here.job("mnist").books.succeeded, lambda n: n == 2, 10)
    until("others are made", lambda: here.job("mnist").books.next_id, lambda n: n > 2, 40)

    assert not here.job("mnist").over


def test_nothing_is_left_when_the_job_goes(here: Journey) -> None:
    """The garbage collector takes all that the Job owned."""
    here.submit("mnist", low=1, high=1, master="true")
    here.wait_running("mnist", 1, 8)
    here.world.send(request.delete(JOBS, here.namespace, "mnist"))

    def left() -> list[str]:
        found = []
        for kind in OBJECTS:
            try:
                found.append(str(_object(here, kind)["kind"]))
            except NotFound:
                continue
        return found

    until("all of it is gone", left, lambda kinds: not kinds, 20)


def test_a_job_made_again_under_its_name_gets_its_own(here: Journey) -> None:
    """Objects of the one before are on their way out; no trainer is told of them."""
    here.submit("mnist", low=1, high=1, master="true")
    here.wait_running("mnist", 1, 8)
    before = _object(here, SERVICES)["metadata"]["uid"]
    here.world.send(request.delete(JOBS, here.namespace, "mnist"))
    here.submit("mnist", low=1, high=1, master="true")
    uid = here.job("mnist").uid
    until(
        "a trainer of the new Job runs",
        lambda: [pod.owner_uid for pod in here.trainers("mnist") if pod.address],
        lambda owners: owners == [uid],
        30,
    )

    service = _object(here, SERVICES)
    assert service["metadata"]["uid"] != before
    assert service["metadata"]["ownerReferences"][0]["uid"] == uid


def test_a_dry_run_shows_the_sidecar(here: Journey) -> None:
    """A pod of role master may ask for it by label, whoever makes it."""
    labels = {LABEL_JOB: "mnist", "edl.training/role": "master", LABEL_MASTER: "true"}
    pod = {
        "metadata": {"name": "own-master", "labels": labels},
        "spec": {"containers": [{"name": "main", "image": "registry.invalid/x"}]},
    }
    asked = replace(request.create(PODS, here.namespace, pod), query=(("dryRun", "All"),))
    made = orjson.loads(here.world.api.send(asked))

    assert "edl-master" in _containers(made)


def test_a_wish_is_checked_at_the_door(here: Journey) -> None:
    """What is neither true nor false, and a wish that comes too late."""
    with pytest.raises((Invalid, Forbidden), match='write "true" for a master'):
        here.submit("mnist", low=1, high=1, master="yes")
    here.submit("mnist", low=1, high=1)
    with pytest.raises((Invalid, Forbidden), match="cannot change once the Job exists"):
        here.edit("mnist", {"metadata": {"annotations": {ANNOTATION_MASTER: "true"}}})
