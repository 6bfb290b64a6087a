"""A job below its minimum reports that once, and its end once; nothing else is written."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kube import errors, request
from kube.request import NODES, PODS
from policy.cluster.snapshot import JobCondition, JobStatus, Phase
from policy.names import ANNOTATION_MAX, ANNOTATION_MIN
from policy.planning.plan import JobPlan
from policy.reasons import Reason
from reconciler.jobs import status
from reconciler.jobs.status import WAITING
from tests.reconciler import objects
from tests.reconciler.server import of
from tests.reconciler.world import WHOLE, Process, World
from tests.support.builders import NOW_S, job

TICK_S = 5.0


@pytest.fixture
def world() -> World:
    """A node with room for three trainers of 5 CPU."""
    return World(16)


def _run_until_quiet(process: Process) -> None:
    process.run(3)
    process.world.clock.advance(TICK_S)
    process.round()


def _writes(world: World) -> list[str]:
    """All but the slow check of classes and budgets, which is made again every few minutes."""
    slow = ("priorityclasses", "poddisruptionbudgets")
    return [w.line for w in world.api.writes if not any(word in w.path for word in slow)]


def _quiet(process: Process, ticks: int = 100) -> bool:
    """Whether that many ticks write nothing and leave the loop at its slow tick."""
    before = _writes(process.world)
    for _ in range(ticks):
        process.world.clock.advance(TICK_S)
        plan = process.round()
        assert plan is not None
        assert plan.empty
    assert process.loop._idle  # noqa: SLF001 - nothing else says how soon the next tick is
    return _writes(process.world) == before


def test_a_job_that_has_its_minimum_says_nothing(world: World, process: Process) -> None:
    """No job is written to for a condition that never was."""
    world.add_job("net", 2, 9)
    process.run(5)

    assert world.waiting() == ("", "", "")


def test_a_trainer_that_fits_no_node_is_not_tried_again(world: World, process: Process) -> None:
    """One condition and one event; then 100 ticks without a write, and no pod ever."""
    world.add_job("net", 1, 2, cpu=100)
    _run_until_quiet(process)

    assert _quiet(process)
    process.write_events()
    (message,) = world.events("FitsNoNode")
    truth, code, text = world.waiting()
    assert (truth, code) == ("True", "FitsNoNode")
    assert "100 cpu" in text
    assert text in message
    assert world.pods("net", ended=True) == []


def test_a_job_starts_by_itself_when_a_node_is_large_enough(world: World, process: Process) -> None:
    """Nobody has to touch the Job; the condition turns False."""
    world.add_job("net", 1, 2, cpu=100)
    _run_until_quiet(process)
    world.ask(request.create(NODES, None, objects.node("large", 128)))
    process.run(3)

    assert len(world.running("net")) == 1
    assert world.waiting() == ("False", "Started", "the job has its minimum")
    assert _quiet(process)


def test_waiting_for_room_is_written_once(world: World, process: Process) -> None:
    """All four or none; the figures move while services come and go, the condition does not."""
    world.add_job("net", 4, 9)
    _run_until_quiet(process)
    before = len(world.api.writes)
    condition = world.waiting()
    world.add_services(2)
    process.run(3)

    assert condition[:2] == ("True", "WaitingForRoom")
    assert world.waiting() == condition
    assert [w for w in world.api.writes[before:] if "/jobs/" in w.path] == []
    assert _quiet(process)


def test_a_quota_below_the_minimum_is_said() -> None:
    """With the quota by name."""
    quota = '"quotas": [{"namespace": "ml", "requests": {"cpu": 5}}]'
    world = World(16, policy=f"{WHOLE[:-1]}, {quota}}}")
    process = Process(world)
    try:
        world.add_job("net", 2, 9)
        _run_until_quiet(process)

        assert world.waiting()[:2] == ("True", "QuotaReached")
        assert "the quota of namespace ml" in world.waiting()[2]
        assert _quiet(process)
    finally:
        process.stop()


def test_backing_off_is_said_and_over_when_the_next_trainer_comes(
    world: World, process: Process
) -> None:
    """A failed trainer is missing until its time has come."""
    world.add_job("net", 1, 1)
    process.run(2)
    world.end(world.pods("net")[0], Phase.FAILED)
    process.run(3)
    during = world.waiting()
    world.clock.advance(20)
    process.run(3)

    assert during[:2] == ("True", "BackingOff")
    assert world.waiting()[:2] == ("False", "Started")


def test_a_job_whose_annotations_are_wrong_is_told_in_its_status(
    world: World, process: Process
) -> None:
    """With what is wrong; corrected, it starts."""
    body = objects.job("net", 2, 4)
    body["metadata"]["annotations"] |= {ANNOTATION_MIN: "9"}
    world.ask(request.create(request.JOBS, "ml", body))
    _run_until_quiet(process)
    condition = world.waiting()
    quiet = _quiet(process)
    bounds = {ANNOTATION_MIN: "2", ANNOTATION_MAX: "3"}
    world.change_job("net", {"metadata": {"annotations": bounds}})
    process.run(3)

    assert condition[:2] == ("True", "Invalid")
    assert ANNOTATION_MIN in condition[2]
    assert quiet
    assert world.waiting()[:2] == ("False", "Started")
    assert len(world.running("net")) == 3


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda world: world.change_job("net", {"spec": {"suspend": True}}), "Suspended"),
        (lambda world: world.add_job("other", 1, 1), "WaitingForRoom"),
    ],
)
def test_a_suspended_job_waits_for_nothing(
    world: World, process: Process, change: Callable[[World], Any], code: str
) -> None:
    """It should have no trainers; what happens to others changes nothing."""
    world.add_job("net", 4, 9)
    _run_until_quiet(process)
    change(world)
    process.run(3)

    assert world.waiting()[:2] == ("False" if code == "Suspended" else "True", code)


def test_a_service_that_takes_a_guaranteed_trainer_makes_the_job_say_so(
    world: World, process: Process
) -> None:
    """And it is taken back when the room is back."""
    world.add_job("net", 3, 3)
    process.run(3)
    world.add_services(1, 15)
    for pod in world.pods("net"):
        world.preempt(pod)
    process.run(3)
    during = world.waiting()[:2]
    web = world.running()[0]
    world.ask(request.delete(PODS, web.namespace, web.name, grace_s=0))
    process.run(15)

    assert during == ("True", "WaitingForRoom")
    assert world.waiting()[:2] == ("False", "Started")


def test_a_job_whose_trainers_are_refused_says_what_the_api_server_says(
    world: World, process: Process
) -> None:
    """A plan does not consider ResourceQuotas of the namespace."""
    quota = errors.Forbidden("exceeded quota: small", status=403)
    world.api.fake.faults.fail_next(quota, 999, match=of("POST", "/namespaces/ml/pods"))
    world.add_job("net", 2, 4)
    process.run(5)
    during = world.waiting()
    version = world.job("net").resource_version
    process.run(30)
    later = world.job("net").resource_version
    world.api.fake.faults.clear()
    process.run(70)

    assert during[:2] == ("True", "Refused")
    assert "exceeded quota: small" in during[2]
    assert later == version
    assert world.waiting()[:2] == ("False", "Started")


def test_refused_surplus_is_no_lack_of_a_minimum(world: World, process: Process) -> None:
    """An event reports it; the job has its minimum."""
    world.add_job("net", 1, 1)
    process.run(3)
    quota = errors.Forbidden("exceeded quota: small", status=403)
    world.api.fake.faults.fail_next(quota, 999, match=of("POST", "/namespaces/ml/pods"))
    world.change_job("net", {"metadata": {"annotations": {ANNOTATION_MAX: "3"}}})
    process.run(5)

    assert world.waiting() == ("", "", "")


JOB = job("net", 2, 4)
SINCE = JobCondition(WAITING, "True", "WaitingForRoom", "no room", NOW_S - 60)
OVER = replace(SINCE, status="False")


def _plan(reason: Reason, target: int = 0) -> JobPlan:
    return JobPlan(JOB.key, 0, target, reason, {}, 0.0)


def _with(*conditions: JobCondition) -> JobStatus:
    return JobStatus(start_s=1.0, conditions=conditions)


def test_waiting_begins_with_its_reason_and_time() -> None:
    """As a sentence where the plan has figures; otherwise the name of the reason."""
    plan = JobPlan(JOB.key, 0, 0, Reason.GROWING, {"waiting": 8}, 0.0)
    text = "waiting for kube-scheduler to place 8 trainers first"

    assert status.waiting(JOB, plan, NOW_S) == JobCondition(WAITING, "True", "Growing", text, NOW_S)


def test_waiting_ends_with_the_minimum() -> None:
    """At the time it gets it; a job without need of trainers reports why."""
    waits = replace(JOB, status=_with(SINCE))
    started = status.waiting(waits, _plan(Reason.AT_MAX, 2), NOW_S)
    suspended = status.waiting(waits, _plan(Reason.SUSPENDED), NOW_S)

    assert started == JobCondition(WAITING, "False", "Started", "the job has its minimum", NOW_S)
    assert suspended == JobCondition(WAITING, "False", "Suspended", "spec.suspend is true", NOW_S)


def test_a_job_that_waits_again_waits_from_now_on() -> None:
    """The time of a wait that is over does not count."""
    again = status.waiting(replace(JOB, status=_with(OVER)), _plan(Reason.QUOTA_REACHED), NOW_S)

    assert again is not None
    assert (again.status, again.time_s) == ("True", NOW_S)


def test_a_job_that_is_wrong_waits_even_with_its_minimum() -> None:
    """Nothing is made for it any more."""
    condition = status.waiting(JOB, _plan(Reason.INVALID, 2), NOW_S)

    assert condition is not None
    assert (condition.status, condition.reason) == ("True", "Invalid")


def test_another_reason_keeps_the_time_since_it_waits() -> None:
    """`lastTransitionTime` is when the status changed, as conditions have it."""
    waits = replace(JOB, status=_with(SINCE))
    condition = status.waiting(waits, _plan(Reason.QUOTA_REACHED), NOW_S)

    assert condition == replace(SINCE, reason="QuotaReached", message="QuotaReached")


@pytest.mark.parametrize(
    ("conditions", "plan"),
    [
        ((), None),
        ((), _plan(Reason.AT_MAX, 2)),
        ((), _plan(Reason.ENDING)),
        ((), _plan(Reason.SUSPENDED)),
        ((SINCE,), _plan(Reason.WAITING_FOR_ROOM)),
        ((OVER,), _plan(Reason.NO_ROOM, 2)),
        ((OVER,), _plan(Reason.ENDING)),
        ((SINCE, JobCondition("Complete", "True")), _plan(Reason.ENDING)),
    ],
)
def test_what_is_said_already_is_not_said_again(
    conditions: tuple[JobCondition, ...], plan: JobPlan | None
) -> None:
    """Nor is there a condition for a job that is ending or has finished."""
    assert status.waiting(replace(JOB, status=_with(*conditions)), plan, NOW_S) is None
