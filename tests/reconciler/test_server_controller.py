"""Jobs that ask for parameter servers, from a cluster in memory."""

from collections.abc import Mapping
from typing import Any

import pytest

from kube import errors, request
from kube.request import JOBS, NODES, PODS, SERVICES
from policy.cluster.snapshot import Phase, Pod
from policy.names import (
    ANNOTATION_CLAIM,
    ANNOTATION_DATA,
    ANNOTATION_EPOCHS,
    ANNOTATION_MASTER_STEPS,
    ANNOTATION_MAX,
    ANNOTATION_SERVER_ADDRESSES,
    ANNOTATION_SERVERS,
    LABEL_ROLE,
)
from reconciler.masters.reports import MasterReport, ReportedState
from tests.reconciler.server import of
from tests.reconciler.world import Process, World, posted


@pytest.fixture
def world() -> World:
    """Two nodes, each with room for three trainers of 5 CPU and one CPU more."""
    return World(16, 16)


def _begin(world: World, process: Process, low: int = 2, high: int = 2) -> list[Pod]:
    """A job with two parameter servers, which run with its trainers."""
    _submit(world, low, high)
    process.run(4)
    return world.servers("net")


def _submit(
    world: World, low: int = 2, high: int = 2, extra: Mapping[str, str] | None = None
) -> None:
    annotations = {ANNOTATION_SERVERS: "2", **(extra or {})}
    world.add_job("net", low, high, master=True, annotations=annotations)


def _running(world: World) -> list[str]:
    return [pod.name for pod in world.servers("net") if pod.ready and not pod.deleting]


def _uids(world: World) -> dict[int, str]:
    return {pod.server: pod.uid for pod in world.servers("net")}


def _delete(world: World, name: str) -> None:
    world.ask(request.delete(PODS, "ml", name))


def _done(world: World, process: Process) -> None:
    poller = process.loop.components.masters._poller  # noqa: SLF001 - its thread is tested with real sockets
    poller._reports[world.job("net").uid] = MasterReport(ReportedState.DONE, world.clock.now_s)  # noqa: SLF001 - see above


def test_a_job_gets_its_servers_and_all_know_where(world: World, process: Process) -> None:
    """A pod and a Service for each, before any trainer; trainers get all their addresses."""
    pods = _begin(world, process)
    services = {s["metadata"]["name"]: s["spec"] for s in world.api.all(SERVICES)}
    order = [pod["metadata"]["name"] for pod in posted(world, "/pods")]

    assert [pod.name for pod in pods] == ["net-ps-0", "net-ps-1"]
    assert all(pod.ready for pod in pods)
    assert sorted(order[:2]) == ["net-ps-0", "net-ps-1"]  # made side by side
    addresses = [f"http://{services[f'net-ps-{i}']['clusterIP']}:8791" for i in range(2)]
    for pod in posted(world, "/pods")[2:]:
        annotations = pod["metadata"]["annotations"]
        assert annotations[ANNOTATION_SERVER_ADDRESSES] == ",".join(addresses)
        assert annotations[ANNOTATION_MAX] == "2"


def test_a_service_leads_to_one_server(world: World, process: Process) -> None:
    """Ready or not, by job and index; it goes with the Job."""
    _begin(world, process)
    service = world.ask(request.get(SERVICES, "ml", "net-ps-1"))

    assert service["spec"]["selector"] == {
        "edl.training/job": "net",
        "edl.training/parameter-server": "1",
    }
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert service["metadata"]["ownerReferences"][0]["uid"] == world.job("net").uid


def test_settings_of_the_master_go_to_the_pod_that_carries_it(
    world: World, process: Process
) -> None:
    """And to no other."""
    _submit(world, extra={ANNOTATION_MASTER_STEPS: "500"})
    process.run(3)
    annotations = {
        pod["metadata"]["name"]: pod["metadata"]["annotations"].get(ANNOTATION_MASTER_STEPS)
        for pod in posted(world, "/pods")
    }

    assert annotations["net-trainer-0"] == "500"
    assert set(annotations.values()) == {"500", None}


def test_every_trainer_knows_data_and_epochs(world: World, process: Process) -> None:
    """As the Job's annotations say them; parameter servers read no data."""
    data = {ANNOTATION_DATA: "/data/train", ANNOTATION_EPOCHS: "12"}
    _submit(world, extra=data)
    process.run(3)
    for pod in posted(world, "/pods"):
        own = pod["metadata"]["annotations"]
        is_trainer = pod["metadata"]["labels"][LABEL_ROLE] == "trainer"

        assert {name: own[name] for name in data if name in own} == (data if is_trainer else {})


def test_a_settled_job_with_servers_gets_no_writes(world: World, process: Process) -> None:
    """A plan on the outcome of a plan does nothing, and neither does the loop."""
    _begin(world, process, 2, 4)
    process.run(3)
    before = len(world.api.writes)
    process.run(5)

    assert len(world.api.writes) == before


def test_a_server_that_is_lost_comes_back_as_itself(world: World, process: Process) -> None:
    """Deleted by somebody: the same name and index as soon as the old pod no longer exists."""
    _begin(world, process)
    before = _uids(world)
    _delete(world, "net-ps-1")
    process.run(3)
    after = _uids(world)

    assert _running(world) == ["net-ps-0", "net-ps-1"]
    assert after[0] == before[0]
    assert after[1] != before[1]


def test_a_server_that_was_evicted_comes_back(world: World, process: Process) -> None:
    """The pod that its kubelet ended is deleted first, for the name is taken."""
    first, _ = _begin(world, process)
    world.end(first, Phase.FAILED)
    process.run(4)

    assert _running(world) == ["net-ps-0", "net-ps-1"]
    assert _uids(world)[0] != first.uid


def test_a_server_on_a_lost_node_comes_back_elsewhere(world: World, process: Process) -> None:
    """At once: nobody on that node would confirm that the old one has ended."""
    first, _ = _begin(world, process)
    body = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
    world.ask(request.merge_patch(NODES, None, first.node, body, subresource="status"))
    process.round()
    graces = [
        w.body for w in world.api.writes if w.method == "DELETE" and b"ps-" in w.path.encode()
    ]
    process.round()
    back = {pod.server: pod for pod in world.servers("net")}

    assert all(b'"gracePeriodSeconds":0' in body for body in graces)
    assert back[0].uid != first.uid


def test_a_server_that_is_lost_again_and_again_comes_later(world: World, process: Process) -> None:
    """One try, then pauses of a second, two, four and so on."""
    _begin(world, process)
    names = world.api.pods_made
    for _ in range(16):
        for pod in world.servers("net"):
            if pod.server == 1 and not pod.deleting:
                _delete(world, pod.name)
        process.run(1)

    assert list(names.values()).count("net-ps-1") in (4, 5)
    process.run(20)
    assert _running(world) == ["net-ps-0", "net-ps-1"]


def test_a_server_that_is_lost_all_the_time_comes_once_a_minute(
    world: World, process: Process
) -> None:
    """The back-offs double up to that; after five minutes without a loss they are reset."""
    world.add_job("net", 1, 1, master=True)
    job, due = world.job("net"), process.loop.components.servers._is_due  # noqa: SLF001 - minutes of ticks
    made_s = [second for second in range(190) if due(job, 0, 1000.0 + second)]
    last_s = 1000.0 + 183 + 60
    soon = [second for second in range(3) if due(job, 0, last_s + 300 + 60 + second)]

    assert made_s == [0, 1, 3, 7, 15, 31, 63, 123, 183]
    assert soon == [0, 1]


def test_losses_far_apart_do_not_add_up(world: World, process: Process) -> None:
    """After five calm minutes a lost server is made at once."""
    _begin(world, process)
    for _ in range(5):
        _delete(world, "net-ps-0")
        process.run(2)
        world.clock.advance(400)
        process.round()
    before = _uids(world)[0]
    _delete(world, "net-ps-0")
    process.run(2)

    assert _uids(world)[0] != before


def test_servers_end_with_the_job_and_after_its_trainers(world: World, process: Process) -> None:
    """Whoever ends last may still fetch what was trained."""
    _begin(world, process)
    _done(world, process)
    alone: list[tuple[int, int]] = []
    for _ in range(12):
        process.run(1)
        alone.append((len(world.running("net")), len(_running(world))))

    assert alone[-1] == (0, 0)
    assert world.servers("net") == []
    assert all(serving == 2 for training, serving in alone if training)
    assert world.job("net").finished


def test_a_suspended_job_gets_its_servers_back_with_its_trainers(
    world: World, process: Process
) -> None:
    """Meanwhile it holds nothing."""
    _begin(world, process)
    world.change_job("net", {"spec": {"suspend": True}})
    process.run(5)
    asleep = world.servers("net")
    world.change_job("net", {"spec": {"suspend": False}})
    process.run(5)

    assert asleep == []
    assert _running(world) == ["net-ps-0", "net-ps-1"]
    assert len(world.running("net")) == 2


def test_without_the_webhook_no_server_starts(world: World, process: Process) -> None:
    """The API server refuses a pod without an image; the event explains what is missing."""
    world.api.webhook = False
    _submit(world)
    process.run(3)
    without = world.servers("net")
    world.api.webhook = True
    process.run(8)
    process.write_events()

    assert without == []
    assert _running(world) == ["net-ps-0", "net-ps-1"]
    assert world.events("ServersRefused")[0] == (
        "net-ps-1 has no image: EDL's webhook was unavailable, or runs without --master-image"
    )
    assert "Created parameter servers 0, 1" in world.events("ServersMade")


def test_other_refusals_are_told_as_they_are(world: World, process: Process) -> None:
    """A ResourceQuota, for example."""
    forbidden = errors.Forbidden("exceeded quota", status=403)
    world.api.fake.faults.fail_next(forbidden, match=of("POST", "/ml/pods"))
    _submit(world)
    process.run(4)
    process.write_events()

    assert "exceeded quota" in world.events("ServersRefused")[0]
    assert _running(world) == ["net-ps-0", "net-ps-1"]


def test_a_name_that_is_taken_is_left_alone(world: World, process: Process) -> None:
    """The user's pod stays; the event names it."""
    body = {"metadata": {"name": "net-ps-0"}, "spec": {"containers": [{"name": "x", "image": "x"}]}}
    world.ask(request.create(PODS, "ml", body))
    _submit(world)
    process.run(3)
    process.write_events()

    assert world.events("ServersRefused")[0] == (
        "Pod net-ps-0 does not belong to this Job: delete it, or rename the Job"
    )
    assert world.events("ServersMade") == ["Created parameter server 1"]
    assert _running(world) == ["net-ps-1"]


def test_a_server_made_by_a_lost_answer_is_taken_over(world: World, process: Process) -> None:
    """It is there already, and ours."""
    world.api.fake.faults.lose_answers(match=of("POST", "/ml/pods"))
    _submit(world)
    process.round()
    world.clock.advance(1)
    process.tick()
    process.run(3)

    assert sorted(world.api.pods_made.values()).count("net-ps-0") == 1
    assert _running(world) == ["net-ps-0", "net-ps-1"]


def test_a_name_that_became_free_is_tried_again(world: World, process: Process) -> None:
    """The name was in use, and by the time its owner is read, it is free."""
    exists = errors.AlreadyExists("there", status=409)
    world.api.fake.faults.fail_next(exists, match=of("POST", "/ml/pods"))
    _submit(world)
    process.run(4)
    process.write_events()

    assert "not found" in world.events("ServersRefused")[0]
    assert _running(world) == ["net-ps-0", "net-ps-1"]


def test_a_deletion_that_fails_is_tried_again(world: World, process: Process) -> None:
    """Every ten seconds: the server that ended blocks its name until it is deleted."""
    first, _ = _begin(world, process)
    away = errors.Unavailable("no answer")
    world.api.fake.faults.fail_next(away, 2, match=of("DELETE", "/net-ps-0"))
    world.end(first, Phase.FAILED)
    tries: list[int] = []
    for _ in range(4):
        process.run(6)
        tries.append(len([w for w in world.api.writes if of("DELETE", "/net-ps-0")(w)]))

    assert tries == [1, 2, 2, 3]
    assert _running(world) == ["net-ps-0", "net-ps-1"]


def test_a_server_that_is_silent_is_told_of_once(world: World, process: Process) -> None:
    """With what to look at: its log where it has a node."""
    _begin(world, process)
    conditions = [{"type": "Ready", "status": "False"}]
    body: dict[str, Any] = {"status": {"conditions": conditions}}
    world.ask(request.merge_patch(PODS, "ml", "net-ps-1", body, subresource="status"))
    process.round()
    for _ in range(3):
        world.clock.advance(61)
        process.round()
    process.write_events()

    (text,) = world.events("ServerSilent")
    assert text == (
        "Parameter server 1 has not been ready for 61 s: see kubectl -n ml logs net-ps-1 "
        "-c edl-pserver"
    )


def test_a_server_without_a_node_is_told_of(world: World, process: Process) -> None:
    """A claim that does not exist, for example: kube-scheduler reports it on the pod."""
    _submit(world, extra={ANNOTATION_CLAIM: "missing"})
    process.round()
    process.round()
    world.clock.advance(61)
    process.round()
    process.write_events()

    assert world.events("ServerSilent")[0] == (
        "Parameter server 0 has not been ready for 61 s: see kubectl -n ml describe pod net-ps-0"
    )


def test_a_server_that_cannot_be_made_is_told_of(world: World, process: Process) -> None:
    """It has no pod to look at."""
    world.api.webhook = False
    _submit(world)
    process.run(2)
    world.clock.advance(61)
    process.round()
    process.write_events()

    assert world.events("ServerSilent")[0] == (
        "Parameter server 0 has not been ready for 62 s: it has no pod, because no node has capacity "
        "or its creation failed"
    )


def test_bad_annotations_that_admission_missed_are_told(world: World, process: Process) -> None:
    """The Job is not changed, and an event explains the error."""
    world.add_job("net", 1, 1, master=True, annotations={ANNOTATION_SERVERS: "many"})
    process.run(2)
    process.write_events()

    assert world.servers("net") == []
    assert f"{ANNOTATION_SERVERS} is 'many'" in world.events("Invalid")[0]


def test_a_job_that_is_gone_is_forgotten(world: World, process: Process) -> None:
    """Nothing piles up."""
    _begin(world, process)
    world.ask(request.delete(JOBS, "ml", "net"))
    process.run(3)
    controller = process.loop.components.servers

    assert list(controller._backoffs) == []  # noqa: SLF001 - see above
    assert (controller._not_ready, controller._delete_again_s) == ({}, {})  # noqa: SLF001 - see above
