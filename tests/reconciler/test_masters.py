"""Jobs that ask for a master, from a cluster in memory."""

import base64
from collections.abc import Iterator
from typing import Any

import pytest

from kube import errors, request
from kube.request import CONFIGMAPS, JOBS, PODS, ROLEBINDINGS, ROLES, SECRETS, SERVICES
from policy.names import ANNOTATION_MASTER_ADDRESS, LABEL_MASTER, Tier
from policy.snapshot import Phase, Pod
from reconciler.words import State, Word
from tests.reconciler.server import of
from tests.reconciler.world import Process, World, posted

OBJECTS = (CONFIGMAPS, SECRETS, ROLES, ROLEBINDINGS, SERVICES)


@pytest.fixture
def world() -> World:
    """Two nodes, each with room for three trainers of 5 CPU and one CPU more."""
    return World(16, 16)


@pytest.fixture
def process(world: World) -> Iterator[Process]:
    """A reconciler there."""
    made = Process(world)
    yield made
    made.stop()


def _object(world: World, kind: request.Resource, name: str = "net-master") -> Any:
    return world.ask(request.get(kind, "ml", name))


def _carriers(world: World) -> list[Pod]:
    return [pod for pod in world.pods("net") if pod.master and not pod.deleting]


def _says(process: Process, world: World, state: State, reason: str = "", **more: Any) -> None:
    """The master's word, as if it had just been asked."""
    word = Word(state, world.clock.now_s, reason, **more)
    polls = process.loop._masters._polls  # noqa: SLF001 - its thread is tested with real sockets
    polls._words[world.job("net").uid] = word  # noqa: SLF001 - see above


def _conditions(world: World) -> dict[str, str]:
    return {c.type: c.message for c in world.job("net").status.conditions if c.status == "True"}


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

    assert rule["resourceNames"] == ["net-master"]
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

    assert [pod.name for pod in _carriers(world)] == ["net-trainer-0"]
    assert len(trainers) == 4
    for pod in trainers:
        assert pod["metadata"]["annotations"][ANNOTATION_MASTER_ADDRESS] == "http://10.96.0.1:8790"


def test_a_job_that_does_not_ask_gets_nothing(world: World, process: Process) -> None:
    """Neither objects nor marks."""
    world.add_job("net", 2, 4)
    process.run(3)

    assert _carriers(world) == []
    assert [w.path for w in world.api.writes if w.path.endswith(("/services", "/secrets"))] == []
    annotations = [pod["metadata"]["annotations"] for pod in posted(world, "/pods")]
    assert all(ANNOTATION_MASTER_ADDRESS not in found for found in annotations)


def test_the_next_trainer_carries_what_the_last_did(world: World, process: Process) -> None:
    """As soon as the pod is told to stop; there is never a second that stays."""
    world.add_job("net", 2, 2, master=True)
    process.run(3)
    (first,) = _carriers(world)
    world.ask(request.delete(PODS, "ml", first.name))
    process.round()
    (second,) = _carriers(world)
    process.run(3)

    assert second.name == "net-trainer-2"
    assert [pod.name for pod in _carriers(world)] == ["net-trainer-2"]
    assert len(world.running("net")) == 2


def test_a_settled_job_with_a_master_gets_no_writes(world: World, process: Process) -> None:
    """A plan on the outcome of a plan does nothing, and neither does the loop."""
    world.add_job("net", 2, 6, master=True)
    process.run(5)
    before = len(world.api.writes)
    process.run(5)

    assert len(world.api.writes) == before


def test_the_end_is_the_masters_word(world: World, process: Process) -> None:
    """Trainers that still run after a few seconds are removed, and the Job is complete."""
    world.add_job("net", 2, 2, master=True)
    process.run(3)
    _says(process, world, State.DONE)
    process.run(3)
    lingering = len(world.running("net"))
    process.run(5)

    assert lingering == 2
    assert world.running("net") == []
    assert _conditions(world)["Complete"] == "the master says that all work is done"


def test_a_master_may_give_up(world: World, process: Process) -> None:
    """The Job fails, with its reason."""
    world.add_job("net", 2, 2, master=True)
    process.run(3)
    _says(process, world, State.FAILED, "too many tasks were dropped")
    process.run(3)

    assert _conditions(world)["Failed"] == "the master gave up: too many tasks were dropped"
    assert world.running("net") == []


def test_a_master_that_gives_no_reason(world: World, process: Process) -> None:
    """The condition says so."""
    world.add_job("net", 1, 1, master=True)
    process.run(3)
    _says(process, world, State.FAILED)
    process.run(3)

    assert "it gave no reason" in _conditions(world)["Failed"]


def test_success_of_trainers_alone_ends_nothing(world: World, process: Process) -> None:
    """Nor are they replaced at once: the master may be about to say that all is done."""
    world.add_job("net", 2, 2, master=True)
    process.run(3)
    (carrier,) = _carriers(world)
    other = next(pod for pod in world.running("net") if not pod.master)
    world.end(other, Phase.SUCCEEDED)
    process.run(3)
    waiting = len(world.running("net")), "Complete" in _conditions(world)
    _says(process, world, State.DONE)
    world.end(carrier, Phase.SUCCEEDED)
    process.run(2)

    assert waiting == (1, False)
    assert "Complete" in _conditions(world)


def test_a_trainer_that_stops_early_is_replaced_later(world: World, process: Process) -> None:
    """After a back-off, and an event says what a trainer should do."""
    world.add_job("net", 2, 2, master=True)
    process.run(3)
    other = next(pod for pod in world.running("net") if not pod.master)
    world.end(other, Phase.SUCCEEDED)
    process.run(3)
    _says(process, world, State.WORK)
    process.run(12)
    process.tell()

    assert len(world.running("net")) == 2
    assert world.job("net").books.succeeded == 1
    (text,) = world.events("TrainersEndedEarly")
    assert text == (
        "1 trainers ended with exit code 0 while the master still has work; they are replaced "
        "after a while: a trainer is to go on until its master says done"
    )


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
    process.tell()

    assert without == ["net-trainer-1"]
    assert len(_carriers(world)) == 1
    assert len(world.running("net")) == 2
    for text in world.events("TrainersRefused"):
        assert text.partition(" ")[2].startswith(
            "came without the job's master: EDL's webhook is away, or was started "
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
    assert len(_carriers(world)) == 1


def test_a_taken_back_trainer_may_be_gone_already(world: World, process: Process) -> None:
    """What counts is that it is not taken for one that carries the master."""
    world.api.webhook = False
    refused = errors.Unavailable("no answer")
    world.api.fake.faults.fail_next(refused, match=of("DELETE", "/pods/net-trainer-0"))
    world.add_job("net", 1, 1, master=True)
    process.round()
    process.tell()

    assert "net-trainer-0 came without" in world.events("TrainersRefused")[0]


@pytest.mark.parametrize("kind", OBJECTS)
def test_a_name_that_is_taken_is_left_alone(
    kind: request.Resource, world: World, process: Process
) -> None:
    """No trainer is made before the user, or the garbage collector, has made way."""
    world.ask(request.create(kind, "ml", {"metadata": {"name": "net-master"}, "spec": {}}))
    world.add_job("net", 1, 1, master=True)
    process.round()
    before = world.pods("net")
    world.ask(request.delete(kind, "ml", "net-master"))
    process.run(3)
    process.tell()

    assert before == []
    assert len(world.running("net")) == 1
    (text,) = world.events("MasterNotProvided")
    assert text == (
        f"{kind.kind} net-master exists and is not this Job's: delete it, or name the Job "
        "otherwise (one of an earlier Job of this name goes by itself)"
    )
    told = [e for e in world.api.all(request.EVENTS) if e["reason"] == "MasterNotProvided"]
    assert [event["type"] for event in told] == ["Warning"]


def test_objects_of_a_process_before_are_taken_over(world: World, process: Process) -> None:
    """Token and address stay the same through a restart of the reconciler."""
    world.add_job("net", 2, 2, master=True)
    process.run(3)
    after = Process(world)
    after.round()
    job = world.job("net")
    first, second = (p.loop._masters._provider.of(job) for p in (process, after))  # noqa: SLF001 - nothing else shows it
    after.stop()

    assert first is not None
    assert first == second
    assert first.token not in repr(first)


def test_what_is_deleted_is_made_again_as_it_was(world: World, process: Process) -> None:
    """With the same token: those who hold it live on."""
    world.add_job("net", 1, 1, master=True)
    process.run(2)
    before = _object(world, SECRETS)["data"]
    world.ask(request.delete(SECRETS, "ml", "net-master"))
    world.clock.advance(301)
    process.round()

    assert _object(world, SECRETS)["data"] == before


@pytest.mark.parametrize(
    ("kind", "patch", "said"),
    [
        (SECRETS, {"data": {"token": "?"}}, "Secret net-master has no usable token"),
        (SECRETS, {"data": None}, "Secret net-master has no usable token"),
        (SERVICES, {"spec": {"clusterIP": "None"}}, "Service net-master has no cluster IP"),
    ],
)
def test_objects_that_were_spoilt_are_named(
    kind: request.Resource, patch: dict[str, Any], said: str, world: World, process: Process
) -> None:
    """What was known before is used on; the event says what to delete."""
    world.add_job("net", 1, 1, master=True)
    process.run(2)
    world.ask(request.merge_patch(kind, "ml", "net-master", patch))
    world.clock.advance(301)
    process.round()
    process.tell()

    assert world.events("MasterNotProvided") == [f"{said}: delete it, and it is made anew"]
    assert len(world.running("net")) == 1


def test_an_api_server_that_refuses_is_asked_again_later(world: World, process: Process) -> None:
    """Each time after a longer pause."""
    forbidden = errors.Forbidden("no", status=403)
    world.api.fake.faults.fail_next(forbidden, 3, match=of("POST", "/rolebindings"))
    world.add_job("net", 1, 1, master=True)
    process.run(9)

    tries = [w for w in world.api.writes if w.path.endswith("/rolebindings")]
    assert len(tries) == 4
    assert len(world.running("net")) == 1


def _uncommitted(world: World) -> list[float]:
    """What is written on the job's trainers, by id."""
    return [pod.uncommitted_s for pod in world.pods("net")]


def test_uncommitted_work_is_written_on_trainers(world: World, process: Process) -> None:
    """In steps of five seconds, and only what differs by as much."""
    world.add_job("net", 2, 2, master=True)
    process.run(6)
    _says(process, world, State.WORK, uncommitted={0: 3.0, 1: 13.7})
    process.run(6)
    first = _uncommitted(world)
    _says(process, world, State.WORK, uncommitted={1: 1.0})
    process.run(6)

    assert first == [0.0, 10.0]
    assert _uncommitted(world) == [0.0, 0.0]


def test_uncommitted_work_that_cannot_be_written_is_tried_again(
    world: World, process: Process
) -> None:
    """A pod may be gone by then; what still differs comes with the next look."""
    world.add_job("net", 1, 1, master=True)
    process.run(6)
    gone = errors.NotFound("gone", status=404)
    world.api.fake.faults.fail_next(gone, match=of("PATCH", "/pods/net-trainer-0"))
    _says(process, world, State.WORK, uncommitted={0: 13.7})
    process.run(6)
    refused = _uncommitted(world)
    process.run(6)

    assert refused == [0.0]
    assert _uncommitted(world) == [10.0]


def test_another_leader_is_written_at_once(world: World, process: Process) -> None:
    """On the new and on the old one, without waiting for the turn of the others."""
    world.add_job("net", 3, 3, master=True)
    process.run(6)
    _says(process, world, State.WORK, leader=0, uncommitted={0: 10.0, 2: 30.0})
    process.run(6)
    before = _uncommitted(world)
    _says(process, world, State.WORK, leader=1, uncommitted={1: 10.0, 2: 90.0})
    process.round()
    at_once = _uncommitted(world)
    process.run(6)

    assert before == [10.0, 0.0, 30.0]
    assert at_once == [0.0, 10.0, 30.0]
    assert _uncommitted(world) == [0.0, 10.0, 90.0]


def test_the_leader_is_the_last_victim_of_a_burst(world: World, process: Process) -> None:
    """From the master's word to the plan's choice, in one round more."""
    world.add_job("net", 1, 6, master=True)
    process.run(8)
    surplus = [pod for pod in world.running("net") if pod.tier is Tier.SURPLUS]
    leader = surplus[0]
    _says(
        process, world, State.WORK, leader=leader.trainer_id, uncommitted={leader.trainer_id: 10.0}
    )
    process.round()
    assert any(_uncommitted(world))
    world.add_services(4, 3)
    process.run(3)

    assert leader.uid in {pod.uid for pod in world.running("net")}
    assert len(world.running("net")) < 5


def _pass(process: Process, world: World, seconds: int) -> None:
    """Time without changes, a round now and then."""
    for _ in range(seconds // 10):
        world.clock.advance(10)
        process.round()


def test_who_leads_no_more_asks_no_master(world: World) -> None:
    """The one that leads now does; both together would ask twice as often."""
    leads = [True]
    process = Process(world, lambda: leads[0])
    polls = process.loop._masters._polls  # noqa: SLF001 - its thread is tested with real sockets
    world.add_job("net", 1, 1, master=True)
    process.run(2)
    before = list(polls._targets.values())  # noqa: SLF001 - see above
    leads[0] = False
    process.round()
    after = dict(polls._targets)  # noqa: SLF001 - see above
    process.stop()

    assert [target.config_map for target in before] == ["net-master"]
    assert after == {}


def test_a_master_is_asked_at_once_when_a_trainer_has_succeeded(
    world: World, process: Process
) -> None:
    """It may be done by then; the pod that carries it, or none, is where it is asked."""
    polls = process.loop._masters._polls  # noqa: SLF001 - its thread is tested with real sockets
    world.add_job("net", 2, 2, master=True)
    process.round()
    (nowhere,) = polls._targets.values()  # noqa: SLF001 - see above
    process.run(3)
    body = {"status": {"podIP": "10.1.2.3"}}
    carrier = "net-trainer-0"
    world.ask(request.merge_patch(PODS, "ml", carrier, body, subresource="status"))
    process.round()
    (running,) = polls._targets.values()  # noqa: SLF001 - see above
    world.end(next(pod for pod in world.running("net") if not pod.master), Phase.SUCCEEDED)
    process.run(2)
    (succeeded,) = polls._targets.values()  # noqa: SLF001 - see above

    assert (nowhere.address, nowhere.turn) == ("", 0)
    assert (running.address, running.turn) == ("10.1.2.3", 0)
    assert (succeeded.address, succeeded.turn) == ("10.1.2.3", 1)
    assert running.token == succeeded.token != ""


def test_a_silent_master_is_told_of_once(world: World, process: Process) -> None:
    """After a minute, with how long it is and with what to look at."""
    world.add_job("net", 1, 1, master=True)
    process.run(1)
    _pass(process, world, 170)
    process.tell()

    assert world.events("MasterSilent") == [
        "the master has not answered for 60 s: see kubectl -n ml logs net-trainer-0 -c edl-master"
    ]


def test_a_master_that_answers_is_not_told_of(world: World, process: Process) -> None:
    """However long ago its pod began: who is warned of what works heeds no warning."""
    world.add_job("net", 1, 1, master=True)
    process.run(3)
    for _ in range(30):
        _says(process, world, State.WORK)
        _pass(process, world, 50)
    process.tell()

    assert world.events("MasterSilent") == []


def test_a_master_that_falls_silent_again_is_told_of_again(world: World, process: Process) -> None:
    """It answered in between; the time counts from its last word."""
    world.add_job("net", 1, 1, master=True)
    process.run(3)
    _pass(process, world, 100)
    _says(process, world, State.WORK)
    _pass(process, world, 100)
    process.tell()

    assert len(world.events("MasterSilent")) == 2


def test_a_master_whose_pod_does_not_run_is_not_told_of(world: World, process: Process) -> None:
    """It waits for a node, or for its image, which is said elsewhere."""
    world.add_job("net", 1, 1, master=True)
    process.round()
    _pass(process, world, 200)
    process.tell()

    assert world.events("MasterSilent") == []


def test_a_job_that_is_gone_is_forgotten(world: World, process: Process) -> None:
    """Nothing piles up."""
    world.add_job("net", 1, 1, master=True)
    process.run(2)
    world.ask(request.delete(JOBS, "ml", "net"))
    process.run(2)
    masters = process.loop._masters  # noqa: SLF001 - that nothing piles up inside is the fact

    assert masters._seen == {}  # noqa: SLF001 - see above
    assert masters._provider._made == {}  # noqa: SLF001 - see above
    assert masters._polls._targets == {}  # noqa: SLF001 - see above
