"""Who stopped trainers, and how many had to go."""

import pytest

from e2e.measure.curves import Curves
from e2e.measure.kills import Cause, causes, kills, needed_by_start, needed_by_steps
from e2e.measure.pods import Kind
from tests.e2e.runs import lifetime, timeline


@pytest.mark.parametrize(
    ("disruption", "winner", "cause"),
    [
        ("EvictionByEvictionAPI", Kind.SERVICE, Cause.RELEASED),
        ("", Kind.SERVICE, Cause.OTHER),
        ("PreemptionByScheduler", Kind.SERVICE, Cause.SERVICES),
        ("PreemptionByScheduler", Kind.SYSTEM, Cause.SERVICES),
        ("PreemptionByScheduler", Kind.SUPPORT, Cause.TRAINING),
    ],
)
def test_the_cause_is_read_from_the_condition_and_from_whoever_was_nominated(
    disruption: str, winner: Kind, cause: Cause
) -> None:
    """A preempted trainer gave way to the pod that was nominated on its node just then."""
    victim = lifetime(
        Kind.TRAINER, running_s=1.0, deleting_s=50.0, disruption=disruption, node="node-000"
    )
    nominee = lifetime(winner, nominations=((50.1, "node-000"), (70.0, "node-000")))
    (kill,) = kills(timeline(victim, nominee))
    assert (kill.cause, kill.at_s) == (cause, 50.0)


def test_a_guaranteed_trainer_preempts_and_a_surplus_one_never_does() -> None:
    """Only pods that may preempt are taken for the cause."""
    victim = lifetime(
        Kind.TRAINER, running_s=1.0, deleting_s=50.0, disruption="PreemptionByScheduler"
    )
    near = ((50.0, "node-000"),)
    surplus = lifetime(Kind.TRAINER, nominations=near)
    guaranteed = lifetime(Kind.TRAINER, surplus=False, nominations=near)
    assert kills(timeline(victim, surplus))[0].cause is Cause.UNCLEAR
    assert kills(timeline(victim, guaranteed))[0].cause is Cause.TRAINING


def test_a_nomination_elsewhere_or_long_ago_is_no_cause() -> None:
    """The node and the moment must match."""
    victim = lifetime(
        Kind.TRAINER, running_s=1.0, deleting_s=50.0, disruption="PreemptionByScheduler"
    )
    far = lifetime(Kind.SERVICE, nominations=((50.0, "node-001"), (40.0, "node-000")))
    assert kills(timeline(victim, far))[0].cause is Cause.UNCLEAR


def test_a_trainer_that_never_had_a_node_was_not_killed() -> None:
    """Withdrawing a pending trainer costs no training."""
    assert kills(timeline(lifetime(Kind.TRAINER, deleting_s=50.0))) == ()


def test_causes_are_all_named() -> None:
    """A cause that did not occur counts 0."""
    assert causes(()) == {cause.value: 0 for cause in Cause}


def test_a_step_needs_what_free_room_does_not_cover() -> None:
    """18 CPU: three trainers leave 3 free, so of two more services one costs one trainer."""
    trainers = [lifetime(Kind.TRAINER, uid=str(n), running_s=1.0) for n in range(3)]
    run = timeline(*trainers, steps=((0, 0), (50, 2), (60, 1), (70, 2)))
    assert needed_by_steps(run) == (1, 0)


def test_smaller_trainers_make_room_for_fewer_services() -> None:
    """Overcommitted ones of 2 CPU: three of them for two services of 3 CPU."""
    trainers = [
        lifetime(Kind.TRAINER, uid=str(n), running_s=1.0, cpu_millis=2000, limit_millis=3000)
        for n in range(9)
    ]
    assert needed_by_steps(timeline(*trainers, steps=((0, 0), (50, 2)))) == (3,)


def test_what_leaves_already_is_room() -> None:
    """A trainer told to stop before the step, ended pods and unknown nodes need no kill."""
    lifetimes = [
        lifetime(Kind.TRAINER, uid="leaving", running_s=1.0, deleting_s=49.0),
        lifetime(Kind.TRAINER, uid="ended", running_s=1.0, ended_s=49.0),
        lifetime(Kind.TRAINER, uid="later", running_s=51.0),
        lifetime(Kind.TRAINER, uid="elsewhere", running_s=1.0, node="other"),
    ]
    assert needed_by_steps(timeline(*lifetimes, steps=((0, 0), (50, 6)))) == (0,)


def test_the_start_needs_each_job_to_give_what_it_has_above_its_share_once() -> None:
    """Three trainers held a node at once and one is left: two had to go, however many went."""
    lifetimes = [
        lifetime(Kind.TRAINER, uid="a", job="job-1", running_s=1.0, deleting_s=5.0),
        lifetime(Kind.TRAINER, uid="b", job="job-1", running_s=1.0, deleting_s=5.0),
        lifetime(Kind.TRAINER, uid="c", job="job-1", running_s=1.0, deleting_s=20.0),
        lifetime(Kind.TRAINER, uid="d", job="job-1", running_s=20.0),
        lifetime(Kind.TRAINER, uid="e", job="job-2", running_s=6.0),
    ]
    run = timeline(*lifetimes, steps=((0, 0), (50, 1)), jobs=("job-1", "job-2"))
    assert needed_by_start(Curves(run)) == 2
