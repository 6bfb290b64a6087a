"""A scenario in virtual time, as the recorder of real runs saw it."""

import pytest

from e2e.experiments.virtual import play
from e2e.measure.kills import Cause, causes, kills
from e2e.measure.pods import Kind
from e2e.measure.record import Timeline
from e2e.workload import FIRST_QUICK


@pytest.fixture(scope="module")
def timeline() -> Timeline:
    """The quick first experiment."""
    return play(FIRST_QUICK)


def test_all_pods_of_the_scenario_come(timeline: Timeline) -> None:
    """System pods before the first job, parameter servers and a master with each."""
    kinds = [lifetime.kind for lifetime in timeline.lifetimes]
    assert kinds.count(Kind.SYSTEM) == FIRST_QUICK.system_pods
    assert kinds.count(Kind.SUPPORT) == FIRST_QUICK.jobs * (FIRST_QUICK.pservers + 1)
    assert kinds.count(Kind.SERVICE) == 0
    assert all(
        lifetime.created_s < 0 for lifetime in timeline.lifetimes if lifetime.kind is Kind.SYSTEM
    )


def test_jobs_are_submitted_as_the_scenario_says(timeline: Timeline) -> None:
    """Second 0 is the first job's; the run lasts as long as a real one."""
    assert timeline.submitted_s == {"job-1": 0.0, "job-2": 4.0, "job-3": 8.0, "job-4": 12.0}
    assert timeline.end_s == FIRST_QUICK.seconds


def test_guaranteed_trainers_are_told_from_surplus(timeline: Timeline) -> None:
    """Each job has its two guaranteed ones, all others are surplus."""
    trainers = [lifetime for lifetime in timeline.lifetimes if lifetime.kind is Kind.TRAINER]
    guaranteed = [lifetime for lifetime in trainers if not lifetime.surplus]
    assert len(guaranteed) == 2 * FIRST_QUICK.jobs


def test_kills_have_their_causes(timeline: Timeline) -> None:
    """The plan's releases and kube-scheduler's preemptions look as on a real cluster."""
    counts = causes(kills(timeline))
    assert counts[Cause.RELEASED] > 0
    assert counts[Cause.TRAINING] > 0
    assert counts[Cause.UNCLEAR] == counts[Cause.OTHER] == counts[Cause.SERVICES] == 0
