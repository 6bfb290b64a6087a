"""The first experiment's figures and criteria, on runs small enough for paper."""

from dataclasses import replace

import pytest

from e2e.demo.run import Run
from e2e.experiments.first import ArrivalOutcome, StageTimes, criteria, outcome
from e2e.experiments.run import REAL, VIRTUAL, Experiment, of_real
from e2e.measure.criteria import Criterion, Figures, measure
from e2e.measure.curves import Curves
from e2e.measure.pods import Kind
from e2e.measure.record import Timeline
from e2e.workload import FIRST
from tests.e2e.runs import lifetime, timeline

SCENARIO = replace(
    FIRST, big_nodes=2, small_nodes=0, system_cpu_millis=1_000, jobs=2, pservers=1, step_s=100.0
)
NODES = {"node-000": 18_000, "node-001": 18_000}


def _run() -> Timeline:
    """Two jobs come together; one trainer of the first is killed at 30 s, one is never placed."""
    first = [
        lifetime(Kind.TRAINER, uid="a1", job="a", created_s=0.5, bound_s=0.6, running_s=1.0),
        lifetime(Kind.TRAINER, uid="a2", job="a", created_s=0.5, bound_s=0.8, running_s=1.0),
        lifetime(
            Kind.TRAINER,
            uid="a3",
            job="a",
            created_s=0.5,
            bound_s=0.7,
            running_s=1.0,
            deleting_s=30.0,
            ended_s=32.0,
        ),
        lifetime(Kind.TRAINER, uid="a4", job="a", created_s=90.0),
    ]
    second = [
        lifetime(Kind.TRAINER, uid="b1", job="b", created_s=30.0, bound_s=33.0, running_s=33.5),
        lifetime(Kind.TRAINER, uid="b2", job="b", created_s=70.0, bound_s=70.5, running_s=71.0),
    ]
    system = lifetime(Kind.SYSTEM, uid="s", running_s=0.0, cpu_millis=1_000, node="node-001")
    return timeline(*first, *second, system, jobs=("a", "b"), nodes=NODES)


def _figures(timeline: Timeline, edl: bool = True) -> Figures:
    return measure(
        timeline,
        min_trainers=2,
        warm_up_s=0.0,
        demo_s=100.0,
        cpu_s={"reconciler": 12.5},
        edl=("reconciler",) if edl else (),
    )


def _by_name(results: tuple[Criterion, ...]) -> dict[str, Criterion]:
    return {criterion.name: criterion for criterion in results}


@pytest.fixture
def first_outcome() -> ArrivalOutcome:
    """The outcome of that run."""
    return outcome(Curves(_run()), SCENARIO)


def test_trainers_are_counted_a_minute_after_the_last_job_and_at_the_end(
    first_outcome: ArrivalOutcome,
) -> None:
    """The second trainer of the second job comes too late for the first of the two."""
    assert first_outcome.settled_trainers == {"a": 2, "b": 1}
    assert first_outcome.last_trainers == {"a": 2, "b": 2}


def test_jobs_below_their_minimum_count_at_the_worse_moment(first_outcome: ArrivalOutcome) -> None:
    """One job lacked a trainer after a minute; that it had it in the end does not mend it."""
    assert first_outcome.jobs_below_min == 1


def test_steps_of_trainers_are_timed(first_outcome: ArrivalOutcome) -> None:
    """Each over those trainers that went through it."""
    assert first_outcome.bind.worst_s == pytest.approx(3.0)
    assert first_outcome.start.mean_s == pytest.approx((0.4 + 0.2 + 0.3 + 0.5 + 0.5) / 5)
    assert first_outcome.stop == StageTimes(2.0, 2.0)


def test_what_never_happened_has_no_time() -> None:
    """No mean and no worst of nothing."""
    assert StageTimes.of([None]) == StageTimes(None, None)


def test_the_bound_knows_where_system_pods_are(first_outcome: ArrivalOutcome) -> None:
    """Two masters, two parameter servers and 5 trainers fill the 35 CPU that it leaves."""
    assert (first_outcome.bound, first_outcome.bound_of_scenario) == (5, 5)


def test_a_run_that_ends_early_is_measured_at_its_end() -> None:
    """The quick experiment has no minute after its last job."""
    short = outcome(Curves(replace(_run(), end_s=40.0)), SCENARIO)
    assert short.settled_trainers == {"a": 2, "b": 1}


def test_criteria_have_the_names_and_limits_of_the_issue() -> None:
    """Reports of different days are compared by them."""
    run = _run()
    results = criteria(_figures(run), outcome(Curves(run), SCENARIO))
    limits = {
        criterion.name: (criterion.limit, criterion.at_least)
        for criterion in results
        if criterion.limit is not None
    }
    assert limits == {
        "first_trainer_mean_s": (2.0, False),
        "first_trainer_worst_s": (5.0, False),
        "whole_minimum_worst_s": (6.0, False),
        "jain_60s_after_last": (0.99, True),
        "trainers_60s_after_last": (275, True),
        "jobs_below_min": (0, False),
        "trainers_pending_percent": (5.0, False),
        "killed": (490, False),
        "killed_of_unavoidable": (1.25, False),
        "edl_cpu_seconds": (60.0, False),
    }
    values = {criterion.name: criterion.value for criterion in results}
    assert values["first_trainer_worst_s"] == 33.5
    assert values["whole_minimum_worst_s"] == 71.0
    assert values["jain_60s_after_last"] == pytest.approx(0.9)
    assert values["killed"] == 1
    assert values["edl_cpu_seconds"] == 12.5


def test_a_job_that_never_starts_fails_the_times() -> None:
    """A mean over those that did start would hide it."""
    run = replace(_run(), submitted_s={"a": 0.0, "b": 0.0, "c": 0.0})
    results = _by_name(criteria(_figures(run), outcome(Curves(run), replace(SCENARIO, jobs=3))))
    for name in ("first_trainer_mean_s", "first_trainer_worst_s", "whole_minimum_worst_s"):
        assert results[name].value is None
        assert not results[name].holds


def test_a_short_run_is_not_held_to_the_numbers_of_the_full_one() -> None:
    """Times and fairness count in it all the same."""
    run = _run()
    results = _by_name(criteria(_figures(run), outcome(Curves(run), SCENARIO), short=True))
    for name in ("trainers_60s_after_last", "killed", "killed_of_unavoidable"):
        assert results[name].limit is None
    assert results["first_trainer_worst_s"].limit == 5.0


def test_kills_where_none_was_needed_have_no_ratio() -> None:
    """One job alone costs nobody a trainer."""
    run = replace(_run(), submitted_s={"a": 0.0})
    alone = replace(SCENARIO, jobs=1)
    results = _by_name(criteria(_figures(run), outcome(Curves(run), alone)))
    assert results["killed_of_unavoidable"].value is None
    none = replace(run, lifetimes=run.lifetimes[:2])
    results = _by_name(criteria(_figures(none), outcome(Curves(none), alone)))
    assert results["killed_of_unavoidable"].value == 0.0


def test_a_virtual_run_has_names_of_its_own_and_no_processes() -> None:
    """Both runs stand in one report; CPU seconds of virtual time mean nothing."""
    run = _run()
    real = of_real(Run("EDL", Curves(run), _figures(run)), SCENARIO)
    virtual = Experiment(VIRTUAL, real.curves, _figures(run, edl=False), real.outcome)
    assert real.name == REAL
    names = [criterion.name for criterion in virtual.criteria(short=False)]
    assert all(name.startswith("virtual_") for name in names)
    assert len(names) == len(real.criteria(short=False)) - 2
