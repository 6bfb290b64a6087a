"""Every figure on a run small enough to check on paper."""

import pytest

from e2e.measure import figures
from e2e.measure.curves import Curves
from e2e.measure.figures import Reclaim, Stages, StartUp
from e2e.measure.kills import kills
from e2e.measure.pods import Kind
from e2e.measure.record import PodLifetime, Timeline
from tests.e2e.runs import lifetime, timeline


def _services(count: int, *, created_s: float, running_s: float) -> list[PodLifetime]:
    return [
        lifetime(Kind.SERVICE, uid=f"s{created_s}-{n}", created_s=created_s, running_s=running_s)
        for n in range(count)
    ]


def test_reclaim_runs_from_the_request_to_the_last_wanted_service() -> None:
    """Two services more are wanted at 50 and run at 53; a step down is no reclaim."""
    run = timeline(
        *_services(2, created_s=0, running_s=1),
        *_services(1, created_s=50.1, running_s=51),
        *_services(1, created_s=50.2, running_s=53),
        steps=((0, 2), (50, 4), (80, 1)),
    )
    assert figures.reclaims(Curves(run)) == (Reclaim(2, 4, 3.0),)


def test_a_step_that_is_not_reached_has_no_reclaim_time() -> None:
    """Services that run only after the next step do not count for this one."""
    run = timeline(*_services(2, created_s=10, running_s=61), steps=((0, 0), (10, 2), (60, 1)))
    assert figures.reclaims(Curves(run)) == (Reclaim(0, 2, None),)


def test_stages_tell_where_the_time_of_a_step_went() -> None:
    """Pods created at 51, a trainer told at 52 and gone at 53, services placed at 54 and run."""
    run = timeline(
        lifetime(Kind.TRAINER, running_s=1, deleting_s=52, ended_s=53),
        lifetime(Kind.SERVICE, uid="a", created_s=51, bound_s=51.5, running_s=51.6),
        lifetime(Kind.SERVICE, uid="b", created_s=50.5, bound_s=54, running_s=54.5),
        lifetime(Kind.TRAINER, uid="later", running_s=1, deleting_s=60),
        steps=((0, 0), (50, 2), (80, 0)),
    )
    all_kills = kills(run)
    assert figures.stages(Curves(run), all_kills) == (Stages(1.0, 2.0, 3.0, 4.0, 4.5),)


def test_a_step_without_services_or_victims_has_stages_too() -> None:
    """Nobody told takes no time; what never came takes the whole plateau."""
    run = timeline(steps=((0, 0), (50, 2), (80, 0)))
    assert figures.stages(Curves(run), ()) == (Stages(30.0, 0.0, 0.0, 30.0, 30.0),)


def test_cpu_in_use_counts_terminating_pods_and_not_pending_ones() -> None:
    """5 of 18 CPU until the containers end; a bound pod that does not run yet counts nothing."""
    run = timeline(
        lifetime(Kind.TRAINER, running_s=0.0, deleting_s=4.0, ended_s=5.0),
        lifetime(Kind.SERVICE, bound_s=0.0),
        end_s=10.0,
    )
    assert figures.cpu_percent(Curves(run), 0, 10) == pytest.approx(100 * 5 / 18 / 2)
    assert figures.cpu_percent(Curves(timeline(nodes={})), 0, 10) == 0


def test_cpu_that_is_asked_for_counts_limits() -> None:
    """Beyond 100 % where requests are a part of them."""
    trainer = lifetime(Kind.TRAINER, running_s=0.0, cpu_millis=10_000, limit_millis=15_000)
    run = timeline(trainer, lifetime(Kind.SERVICE, running_s=0.0), end_s=10.0)
    assert figures.asked_percent(Curves(run), 0, 10) == pytest.approx(100 * (15 + 3) / 18)
    assert figures.asked_percent(Curves(timeline(nodes={})), 0, 10) == 0


def test_limits_of_trainers_count_from_creation_until_they_leave() -> None:
    """As the policy's quotas on limits count them; servers and services of users' own are none of them."""
    run = timeline(
        lifetime(Kind.TRAINER, created_s=1.0, running_s=3.0, deleting_s=5.0, ended_s=6.0),
        lifetime(Kind.SUPPORT, created_s=5.0),
        lifetime(Kind.SERVICE, created_s=0.0),
    )
    limits = Curves(run).trainer_limits
    assert [limits.at(moment) for moment in (0, 2, 4, 5.5)] == [0, 5000, 5000, 0]


def test_off_peak_is_the_time_with_at_most_half_of_the_services() -> None:
    """Only plateaus of few services, and only after the warm-up."""
    run = timeline(
        lifetime(Kind.TRAINER, running_s=45.0, cpu_millis=18_000),
        steps=((0, 4), (40, 2), (50, 4), (60, 1)),
        end_s=70.0,
    )
    assert figures.off_peak_percent(Curves(run), 0) == pytest.approx(75)
    assert figures.off_peak_percent(Curves(run), 60) == pytest.approx(100)
    assert figures.off_peak_percent(Curves(run), 80) == 0
    assert figures.off_peak_percent(Curves(timeline(steps=())), 0) == 0


def test_a_service_waits_beside_surplus_only_while_surplus_is_at_work() -> None:
    """It waits for 20 s, in 4 of which a surplus trainer was running and not yet told to stop."""
    run = timeline(
        lifetime(Kind.SERVICE, created_s=10.0, running_s=30.0),
        lifetime(Kind.TRAINER, running_s=0.0, deleting_s=14.0, ended_s=20.0),
        lifetime(Kind.TRAINER, running_s=0.0, surplus=False),
    )
    assert figures.longest_wait_beside_surplus(Curves(run)) == 4


def test_a_service_that_never_runs_waits_until_the_end() -> None:
    """The longest wait is not forgotten because it never ended."""
    run = timeline(
        lifetime(Kind.SERVICE, created_s=10.0), lifetime(Kind.TRAINER, running_s=0.0), end_s=30.0
    )
    assert figures.longest_wait_beside_surplus(Curves(run)) == 20


def _trainers(job: str, *running_s: float) -> list[PodLifetime]:
    return [lifetime(Kind.TRAINER, uid=f"{job}-{s}", job=job, running_s=s) for s in running_s]


def test_start_up_is_counted_from_the_submission() -> None:
    """A job without trainers has no times; the others have the first and the minimum's."""
    run = timeline(*_trainers("job-1", 3.0, 4.0), jobs=("job-1", "job-2"))
    assert figures.start_ups(Curves(run), 2) == (
        StartUp("job-1", 3.0, 4.0),
        StartUp("job-2", None, None),
    )


def _unfair_run() -> Timeline:
    return timeline(
        *_trainers("job-1", 1.0, 2.0, 3.0),
        lifetime(Kind.TRAINER, uid="x", job="job-2", running_s=5.0),
        lifetime(Kind.TRAINER, uid="y", job="job-2", running_s=6.0, deleting_s=10.0),
        lifetime(Kind.TRAINER, uid="z", job="job-2", running_s=14.0),
        jobs=("job-1", "job-2"),
        end_s=20.0,
    )


def test_below_minimum_counts_after_a_jobs_own_start_up() -> None:
    """job-2 had its minimum of 2 at 6, lacked it from 10 to 14 while job-1 had 3."""
    assert figures.unfair_seconds(Curves(_unfair_run()), 2) == 4


def test_below_minimum_is_no_injustice_while_nobody_has_more() -> None:
    """With a minimum of 3 nobody is above it."""
    assert figures.unfair_seconds(Curves(_unfair_run()), 3) == 0


@pytest.mark.parametrize(
    ("counts", "index"), [([5, 5, 5], 1), ([9, 0, 0], 1 / 3), ([0, 0], 1), ([], 1)]
)
def test_jain(counts: list[int], index: float) -> None:
    """Equal shares give 1, one taker of n gives 1/n, nothing for anybody is fair."""
    assert figures.jain(counts) == pytest.approx(index)


def test_plateaus_are_read_just_before_the_next_step() -> None:
    """What the step itself changes belongs to the next plateau."""
    run = timeline(
        *_trainers("job-1", 1.0, 50.0), steps=((0, 1), (50, 2)), jobs=("job-1",), end_s=60.0
    )
    assert figures.plateau_trainers(Curves(run)) == ({"job-1": 1}, {"job-1": 2})


def test_pending_counts_surplus_that_waits_longer_than_a_second() -> None:
    """Of four trainers wanted one waits for 3 s, one guaranteed and one brief wait do not count."""
    run = timeline(
        lifetime(Kind.TRAINER, uid="a", created_s=0.0, running_s=3.0),
        lifetime(Kind.TRAINER, uid="b", created_s=0.0, running_s=0.9),
        lifetime(Kind.TRAINER, uid="c", created_s=0.0, running_s=0.0),
        lifetime(Kind.TRAINER, uid="d", created_s=0.0, surplus=False),
    )
    assert figures.pending_percent(Curves(run)) == 25
    assert figures.pending_percent(Curves(timeline())) == 0


def _burst(
    *lifetimes: PodLifetime, late_s: float = 53.0, disruption: str = "PreemptionByScheduler"
) -> int:
    """Trainers that competed in a burst at 50 whose last service gets node-001 at `late_s`."""
    run = timeline(
        lifetime(Kind.TRAINER, uid="victim", running_s=1.0, deleting_s=51.0, disruption=disruption),
        lifetime(
            Kind.SERVICE,
            uid="s",
            created_s=50.1,
            running_s=late_s,
            node="node-001",
            nominations=((51.0, "node-000"),),
        ),
        *lifetimes,
        steps=((0, 0), (50, 1), (80, 0)),
    )
    return len(figures.competitors(run))


def test_a_trainer_on_a_promised_node_competes() -> None:
    """Both the node that was nominated and the one that was taken in the end are needed."""
    assert _burst(lifetime(Kind.TRAINER, uid="c", running_s=52.0, node="node-000")) == 1
    assert _burst(lifetime(Kind.TRAINER, uid="c", running_s=52.0, node="node-001")) == 1


@pytest.mark.parametrize(
    ("bound_s", "node"), [(52.0, "node-002"), (50.5, "node-001"), (53.5, "node-001")]
)
def test_a_trainer_elsewhere_before_or_after_does_not_compete(bound_s: float, node: str) -> None:
    """The burst lasts from its first preemption to its last service's start."""
    assert _burst(lifetime(Kind.TRAINER, uid="c", running_s=bound_s, node=node)) == 0


def test_without_preemption_there_is_no_burst() -> None:
    """Services that find free room contend with nobody."""
    trainer = lifetime(Kind.TRAINER, uid="c", running_s=52.0, node="node-001")
    assert _burst(trainer, disruption="") == 0
