"""Jobs whose trainers are refused or never placed cost the others nothing."""

import pytest

from kube import errors
from kube.request import Request
from policy.names import ANNOTATION_BOOKS
from tests.reconciler import admission
from tests.reconciler.world import Process, World

PLACES = 40


@pytest.fixture
def world() -> World:
    """Ten nodes, each with room for four trainers."""
    return World(*[20] * 10)


def _vain_per_minute(process: Process, name: str, minutes: int = 2) -> float:
    """Trainers of a job at rest that are created and do not stay, each minute."""
    before = set(process.world.api.pods_made)
    process.run(60 * minutes)
    made = {uid for uid, pod in process.world.api.pods_made.items() if f"{name}-trainer" in pod}
    stay = {pod.uid for pod in process.world.pods(name)}
    return len(made - before - stay) / minutes


def _is_creation(sent: Request) -> bool:
    return sent.method == "POST" and sent.path.endswith("/pods") and not sent.query


def test_a_quota_on_one_job_does_not_stop_another(world: World, process: Process) -> None:
    """In ten seconds the other has all the room, and the first one what its quota allows."""
    world.api.admission.append(admission.quota(world.api, "a", pods=1))
    world.add_job("a", 1, 60)
    world.add_job("b", 1, 60)
    process.run(10)

    assert (len(world.running("a")), len(world.running("b"))) == (1, PLACES - 1)


def test_a_quota_that_is_raised_is_used(world: World, process: Process) -> None:
    """A minute later at the latest; nobody has to touch the Job."""
    world.api.admission.append(admission.quota(world.api, "a", pods=3))
    world.add_job("a", 1, 6)
    process.run(60)
    limited = len(world.running("a"))
    world.api.admission.clear()
    process.run(62)

    assert (limited, len(world.running("a"))) == (3, 6)


def test_a_trainer_that_a_quota_allowed_before_comes_back_at_once(
    world: World, process: Process
) -> None:
    """What is known to work needs no back-off."""
    world.api.admission.append(admission.quota(world.api, "a", pods=3))
    world.add_job("a", 1, 6)
    process.run(60)
    world.preempt(world.running("a")[-1])
    process.run(3 + 5)  # its node cools down first

    assert len(world.running("a")) == 3


def test_pod_security_against_one_job_does_not_stop_another(world: World, process: Process) -> None:
    """The room of its minimum is not kept for it either."""
    world.api.admission.append(admission.pod_security("a"))
    world.add_job("a", 30, 60)
    world.add_job("b", 1, 60)
    process.run(10)

    assert len(world.running("b")) == PLACES
    assert world.waiting("a")[:2] == ("True", "Refused")
    assert "violates PodSecurity" in world.waiting("a")[2]


def test_trainers_that_must_be_apart_do_not_stop_another_job(
    world: World, process: Process
) -> None:
    """Of each try one trainer is made in vain, and tries become rare."""
    world.apart.add("a")
    world.add_job("a", 1, 60)
    world.add_job("b", 1, 60)
    process.run(10)
    shares = len(world.running("a")), len(world.running("b"))
    process.run(60)

    assert shares[0] == 10
    assert shares[1] >= PLACES - 10 - 1  # one trainer may be tried just now
    assert _vain_per_minute(process, "a") < 3
    assert len(world.running("b")) >= PLACES - 11


def test_trainers_that_must_be_apart_grow_when_a_trainer_is_placed(
    world: World, process: Process
) -> None:
    """The back-off is forgotten with the first one that gets a node."""
    world.apart.add("a")
    world.add_job("a", 1, 30)
    process.run(60)
    apart = len(world.running("a"))
    world.apart.clear()
    process.run(120)

    assert (apart, len(world.running("a"))) == (10, 30)


def test_trainers_with_scheduling_gates_are_not_made_again_and_again(
    world: World, process: Process
) -> None:
    """The first ones wait for whoever set the gates; another job has all the room meanwhile."""
    world.add_job("a", 1, 60)
    gates = {"schedulingGates": [{"name": "network/ready"}]}
    world.change_job("a", {"spec": {"template": {"spec": gates}}})
    world.add_job("b", 1, 60)
    process.run(60)
    shares = len(world.running("a")), len(world.running("b"))

    assert shares == (0, PLACES)
    assert _vain_per_minute(process, "a") == 0


@pytest.mark.parametrize("cause", ["quota", "apart"])
def test_a_size_that_cannot_be_reached_is_tried_rarely(cause: str) -> None:
    """Six trainers are possible, which lies between four and eight: four stay."""
    nodes = 6 if cause == "apart" else 10
    policy = '{"reserve":{"maxLoad":{"cpu":1}},"sizes":[{"namespaces":["*"],"step":4}]}'
    world = World(*[20] * nodes, policy=policy)
    process = Process(world)
    if cause == "apart":
        world.apart.add("a")
    else:
        world.api.admission.append(admission.quota(world.api, "a", pods=6))
    world.add_job("a", 4, 16)
    process.run(30)
    vain = _vain_per_minute(process, "a", 4)
    process.stop()

    assert vain <= 4
    assert len(world.running("a")) >= 4


def test_a_kube_scheduler_that_was_away_backs_nothing_off(world: World, process: Process) -> None:
    """All trainers run a second after it is back."""
    world.add_job("a", 2, 8)
    process.run(10)
    world.extender = None
    for pod in world.running("a")[:4]:
        world.preempt(pod)
    process.run(300)
    world.extender = True
    process.run(3)

    assert len(world.running("a")) == 8


def test_a_minimum_that_a_quota_splits_is_taken_back(world: World, process: Process) -> None:
    """All or nothing; other jobs get the room, and the next tries are rare."""
    world.api.admission.append(admission.quota(world.api, "a", pods=2))
    world.add_job("a", 8, 8)
    world.add_job("b", 1, 32)
    process.run(10)
    begun = len(world.running("a")), len(world.running("b"))
    vain = _vain_per_minute(process, "a", 3)
    condition = world.waiting("a")
    world.api.admission.clear()
    world.clock.advance(400)
    process.run(5)

    assert begun == (0, PLACES - 8)
    assert vain < 3
    assert condition[:2] == ("True", "Refused")
    assert "exceeded quota: small" in condition[2]
    assert len(world.running("a")) == 8


def test_a_running_job_whose_replacement_is_refused_keeps_what_it_has(
    world: World, process: Process
) -> None:
    """Only a start is all or nothing."""
    world.add_job("a", 4, 4)
    process.run(5)
    world.api.admission.append(admission.quota(world.api, "a", pods=3))
    world.preempt(world.running("a")[0])
    process.run(30)

    assert len(world.running("a")) == 3


def test_a_partial_start_is_taken_back_by_the_next_leader(world: World) -> None:
    """It finds two of eight trainers, and no history; the job's status says that it only starts."""
    world.api.admission.append(admission.quota(world.api, "a", pods=2))
    world.add_job("a", 8, 8)
    first = Process(world)
    first.round()
    begun = len(world.pods("a"))
    first.stop()
    second = Process(world)
    second.run(10)
    second.stop()

    assert (begun, world.pods("a")) == (2, [])


def test_a_partial_start_in_two_tries_is_taken_back(world: World, process: Process) -> None:
    """Failures that pass end the first try; the next one is refused."""
    world.api.admission.append(admission.quota(world.api, "a", pods=2))
    error = errors.Unavailable("etcd timeout", status=500)
    world.api.fake.faults.fail_next(error, 6, match=_is_creation)
    world.add_job("a", 8, 8)
    process.round()
    begun = len(world.pods("a"))
    process.run(10)

    assert (begun, world.pods("a")) == (2, [])


def test_a_job_that_ran_keeps_its_part_under_the_next_leader(world: World) -> None:
    """It lost a trainer, whose replacement is refused; the others hold its progress."""
    world.add_job("a", 4, 4)
    first = Process(world)
    first.run(5)
    world.api.admission.append(admission.quota(world.api, "a", pods=3))
    world.preempt(world.running("a")[0])
    first.run(10)
    first.stop()
    second = Process(world)
    second.run(30)
    second.stop()

    assert len(world.running("a")) == 3


def test_servers_do_not_stay_without_trainers(world: World, process: Process) -> None:
    """A quota takes the two servers and no trainer: they go, and the next tries are rare."""
    world.api.admission.append(admission.namespace_quota(world.api, pods=2))
    servers = {"edl.training/parameter-servers": "2"}
    world.add_job("a", 4, 8, master=True, annotations=servers)
    process.run(15)
    stay = len(world.servers("a"))
    seconds_with_servers = 0
    for _ in range(180):
        process.round()
        world.step()
        seconds_with_servers += bool(world.servers("a"))

    assert stay == 0
    assert seconds_with_servers <= 30


def test_accounting_that_cannot_be_written_is_reported(world: World, process: Process) -> None:
    """A policy that refuses updates of Jobs: condition, event and record have its words."""
    text = 'admission webhook "kyverno" denied the request: Jobs are immutable'
    world.api.fake.faults.fail_next(
        errors.KubeError(text, status=400),
        999,
        match=lambda r: (
            r.method == "PATCH"
            and ANNOTATION_BOOKS.encode() in r.body.replace(b"~1", b"/")
            and r.path.endswith("/jobs/a")
        ),
    )
    world.add_job("a", 2, 6)
    process.run(5)
    process.write_events()
    codes = {record.code for record in process.records()}

    assert world.pods("a", ended=True) == []
    assert world.waiting("a")[:2] == ("True", "Refused")
    assert "Jobs are immutable" in world.waiting("a")[2]
    assert "Jobs are immutable" in world.events("TrainersRefused")[0]
    assert "AtMax" not in codes
