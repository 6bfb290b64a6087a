"""Objects and hosts of masters of jobs that ask for one, from a cluster in memory."""

import base64
from typing import Any

import pytest

from kube import errors, request
from kube.request import CONFIGMAPS, JOBS, PODS, ROLEBINDINGS, ROLES, SECRETS, SERVICES
from policy.cluster.snapshot import Pod
from policy.names import ANNOTATION_MASTER_ADDRESS, ANNOTATION_MAX, LABEL_MASTER
from tests.reconciler.server import of
from tests.reconciler.world import Process, World, posted

OBJECTS = (CONFIGMAPS, SECRETS, ROLES, ROLEBINDINGS, SERVICES)


@pytest.fixture
def world() -> World:
    """Two nodes, each with room for three trainers of 5 CPU and one CPU more."""
    return World(16, 16)


def _object(world: World, kind: request.Resource, name: str = "net-edl-master") -> Any:
    return world.ask(request.get(kind, "ml", name))


def _master_hosts(world: World) -> list[Pod]:
    return [pod for pod in world.pods("net") if pod.master and not pod.deleting]


def test_everything_is_there_before_the_first_trainer(world: World, process: Process) -> None:
    """And goes with the Job, which owns it."""
    job = world.add_job("net", 2, 4, master=True)
    process.round()
    posts = [w.path.rpartition("/")[2] for w in world.api.writes if w.method == "POST"]

    assert all(posts.index(kind.plural) < posts.index("pods") for kind in OBJECTS)
    for kind in OBJECTS:
        owner = _object(world, kind)["metadata"]["ownerReferences"][0]
        assert (owner["kind"], owner["uid"]) == ("Job", job["metadata"]["uid"])


def test_the_objects_say_what_they_are_for(world: World, process: Process) -> None:
    """One address, one ConfigMap, one account, one token of 32 bytes."""
    world.add_job("net", 1, 1, master=True)
    process.round()
    (rule,) = _object(world, ROLES)["rules"]
    service = _object(world, SERVICES)["spec"]
    token = base64.b64decode(_object(world, SECRETS)["data"]["token"])

    assert rule["resourceNames"] == ["net-edl-master"]
    assert (rule["resources"], rule["verbs"]) == (["configmaps"], ["get", "update"])
    assert _object(world, ROLEBINDINGS)["subjects"][0]["name"] == "default"
    assert service["selector"] == {"edl.training/job": "net", LABEL_MASTER: "true"}
    assert service["publishNotReadyAddresses"] is True
    assert len(base64.urlsafe_b64decode(token + b"=")) == 32


def test_one_trainer_carries_it_and_all_know_where(world: World, process: Process) -> None:
    """The lowest id; the address is the Service's."""
    world.add_job("net", 2, 4, master=True)
    process.run(3)
    trainers = posted(world, "/pods")

    assert [pod.name for pod in _master_hosts(world)] == ["net-trainer-0"]
    assert len(trainers) == 4
    for pod in trainers:
        assert pod["metadata"]["annotations"][ANNOTATION_MASTER_ADDRESS] == "http://10.96.0.1:8790"


def test_a_job_that_does_not_ask_gets_nothing(world: World, process: Process) -> None:
    """Neither objects nor marks."""
    world.add_job("net", 2, 4)
    process.run(3)

    assert _master_hosts(world) == []
    assert [w.path for w in world.api.writes if w.path.endswith(("/services", "/secrets"))] == []
    annotations = [pod["metadata"]["annotations"] for pod in posted(world, "/pods")]
    assert all(ANNOTATION_MASTER_ADDRESS not in annotation for annotation in annotations)


def test_the_next_trainer_carries_what_the_last_did(world: World, process: Process) -> None:
    """As soon as the pod is being deleted; there is never a second one that stays."""
    world.add_job("net", 2, 2, master=True)
    process.run(3)
    (first,) = _master_hosts(world)
    world.ask(request.delete(PODS, "ml", first.name))
    process.round()
    (second,) = _master_hosts(world)
    process.run(3)

    assert second.name == "net-trainer-2"
    assert [pod.name for pod in _master_hosts(world)] == ["net-trainer-2"]
    assert len(world.running("net")) == 2


def test_a_settled_job_with_a_master_gets_no_writes(world: World, process: Process) -> None:
    """A plan on the outcome of a plan does nothing, and neither does the loop."""
    world.add_job("net", 2, 6, master=True)
    process.run(5)
    before = len(world.api.writes)
    process.run(5)

    assert len(world.api.writes) == before


def test_without_the_webhook_no_trainer_stays_that_should_carry(
    world: World, process: Process
) -> None:
    """It is taken back, the others run, and the try is repeated, more slowly each time."""
    world.api.webhook = False
    world.add_job("net", 2, 2, master=True)
    process.run(5)
    without = [pod.name for pod in world.running("net")]
    world.api.webhook = True
    process.run(10)
    process.write_events()

    assert without == ["net-trainer-1"]
    assert len(_master_hosts(world)) == 1
    assert len(world.running("net")) == 2
    for text in world.events("TrainersRefused"):
        assert text.partition(" ")[2].startswith(
            "was created without the job's master: EDL's webhook was unavailable, or runs "
            "without --master-image"
        )


def test_the_id_of_a_trainer_that_was_taken_back_is_spent(world: World, process: Process) -> None:
    """Its pod was there: another of its name would be taken for it, in logs and by the master."""
    world.api.webhook = False
    world.add_job("net", 1, 1, master=True)
    process.round()
    world.clock.advance(2)
    process.tick()  # without a look: the watch has not shown the first yet
    world.api.webhook = True
    process.run(6)
    names = list(world.api.pods_made.values())

    assert len(names) == len(set(names)) == 3
    assert len(_master_hosts(world)) == 1


def test_a_taken_back_trainer_may_be_gone_already(world: World, process: Process) -> None:
    """What counts is that it is not taken for the host of the master."""
    world.api.webhook = False
    refused = errors.Unavailable("no answer")
    world.api.fake.faults.fail_next(refused, match=of("DELETE", "/pods/net-trainer-0"))
    world.add_job("net", 1, 1, master=True)
    process.round()
    process.write_events()

    assert "net-trainer-0 was created without" in world.events("TrainersRefused")[0]


@pytest.mark.parametrize("kind", [kind for kind in OBJECTS if kind is not SECRETS])
def test_a_name_that_is_taken_is_left_alone(
    kind: request.Resource, world: World, process: Process
) -> None:
    """No trainer is made before the user, or the garbage collector, has made way."""
    world.ask(request.create(kind, "ml", {"metadata": {"name": "net-edl-master"}, "spec": {}}))
    world.add_job("net", 1, 1, master=True)
    process.round()
    before = world.pods("net")
    world.ask(request.delete(kind, "ml", "net-edl-master"))
    process.run(3)
    process.write_events()

    assert before == []
    assert len(world.running("net")) == 1
    (text,) = world.events("MasterNotProvided")
    assert text == (
        f"{kind.kind} net-edl-master does not belong to this Job: delete it, or rename the Job "
        "(if it belongs to a deleted Job of this name, Kubernetes deletes it soon)"
    )
    events = [e for e in world.api.all(request.EVENTS) if e["reason"] == "MasterNotProvided"]
    assert [event["type"] for event in events] == ["Warning"]


def test_objects_of_a_process_before_are_taken_over(world: World, process: Process) -> None:
    """Token and address stay the same through a restart of the reconciler."""
    world.add_job("net", 2, 2, master=True)
    process.run(3)
    after = Process(world)
    after.round()
    job = world.job("net")
    first, second = (
        p.loop.components.masters._job_objects.endpoints(job)  # noqa: SLF001 - nothing else shows it
        for p in (process, after)
    )
    after.stop()

    assert first is not None
    assert first == second
    assert first.token not in repr(first)


def test_what_is_deleted_is_made_again_as_it_was(world: World, process: Process) -> None:
    """With the same token, because running trainers use it."""
    world.add_job("net", 1, 1, master=True)
    process.run(2)
    before = _object(world, SECRETS)["data"]
    world.ask(request.delete(SECRETS, "ml", "net-edl-master"))
    world.clock.advance(301)
    process.round()

    assert _object(world, SECRETS)["data"] == before


@pytest.mark.parametrize(
    ("kind", "patch", "message"),
    [
        (SERVICES, {"spec": {"clusterIP": "None"}}, "Service net-edl-master has no cluster IP"),
    ],
)
def test_objects_that_were_spoilt_are_named(
    kind: request.Resource, patch: dict[str, Any], message: str, world: World, process: Process
) -> None:
    """The endpoints known before stay in use; the event names what to delete."""
    world.add_job("net", 1, 1, master=True)
    process.run(2)
    world.ask(request.merge_patch(kind, "ml", "net-edl-master", patch))
    world.clock.advance(301)
    process.round()
    process.write_events()

    assert world.events("MasterNotProvided") == [f"{message}: delete it, and EDL creates it again"]
    assert len(world.running("net")) == 1


def test_a_job_whose_objects_cannot_be_created_keeps_no_room(
    world: World, process: Process
) -> None:
    """No pod of it comes before they exist: others use the room, and its condition has the reason."""
    world.ask(request.create(SERVICES, "ml", {"metadata": {"name": "net-edl-master"}, "spec": {}}))
    world.add_job("net", 2, 4, master=True)
    world.add_job("other", 1, 10)
    process.run(10)
    plan = process.round()

    assert plan is not None
    assert plan.creates == ()
    assert len(world.running("other")) == 6
    status, reason, message = world.waiting("net")
    assert (status, reason) == ("True", "Refused")
    assert "Service net-edl-master does not belong to this Job: delete it" in message


def test_a_running_job_that_lost_its_objects_to_another_does_not_grow(world: World) -> None:
    """A new leader does not know them: the job keeps its trainers, and others use the rest."""
    first = Process(world)
    world.add_job("net", 1, 1, master=True)
    first.run(2)
    first.stop()
    world.ask(request.delete(SERVICES, "ml", "net-edl-master"))
    world.ask(request.create(SERVICES, "ml", {"metadata": {"name": "net-edl-master"}, "spec": {}}))
    world.change_job("net", {"metadata": {"annotations": {ANNOTATION_MAX: "4"}}})
    world.add_job("other", 1, 10)
    second = Process(world)
    second.run(10)
    plan = second.round()
    second.stop()

    assert plan is not None
    assert plan.creates == ()
    assert (len(world.running("net")), len(world.running("other"))) == (1, 5)


def test_an_api_server_that_refuses_is_asked_again_later(world: World, process: Process) -> None:
    """Each time after a longer pause."""
    forbidden = errors.Forbidden("no", status=403)
    world.api.fake.faults.fail_next(forbidden, 3, match=of("POST", "/rolebindings"))
    world.add_job("net", 1, 1, master=True)
    process.run(9)

    tries = [w for w in world.api.writes if w.path.endswith("/rolebindings")]
    assert len(tries) == 4
    assert len(world.running("net")) == 1


def test_a_job_that_is_gone_is_forgotten(world: World, process: Process) -> None:
    """Nothing piles up."""
    world.add_job("net", 1, 1, master=True)
    process.run(2)
    world.ask(request.delete(JOBS, "ml", "net"))
    process.run(2)
    masters = process.loop.components.masters

    assert masters._reported == {}  # noqa: SLF001 - see above
    assert masters._job_objects._endpoints == {}  # noqa: SLF001 - see above
    assert masters._poller._targets == {}  # noqa: SLF001 - see above
