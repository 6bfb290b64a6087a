from dataclasses import replace

import pytest

from policy.decisions import Figures, sentence
from policy.names import Tier
from policy.planning import JobPlan, Plan, Release
from policy.reasons import Reason
from reconciler import reports
from reconciler.trainers import Outcome
from tests.support.builders import job, shape

JOB = job("net", 2)
JOBS = {JOB.key: JOB}
FIGURES: Figures = {
    "missing": 2,
    "needs": shape(5),
    "nodes": 3,
    "largest": shape(4),
    "scope": "queue night",
    "resource": "cpu",
    "limit": "8",
    "short": "2",
    "failures": 2,
    "left_s": 4,
    "error": "min-trainers is x",
}
"""Whatever a sentence may speak of."""


def _release(number: int) -> Release:
    figures = {"live": 7, "wanted": 2}
    return Release(JOB.key, f"u{number}", "ml", f"p{number}", "n0", Reason.ABOVE_MAX, figures)


def _plan(reason: Reason, target: int = 0) -> Plan:
    return Plan(jobs=(JobPlan(JOB.key, 0, target, reason, FIGURES, 0.0),))


def test_trainers_that_were_made_are_told() -> None:
    """Even if others were refused: the refusal comes again if it lasts."""
    event = reports.of_outcome(Outcome(JOB, 3, Tier.SURPLUS, Reason.SURPLUS, "no"))

    assert event is not None
    assert (event.reason, event.message) == ("TrainersMade", "made 3 surplus trainers")
    assert not event.warning


def test_a_refusal_is_a_warning() -> None:
    """With what the API server said."""
    event = reports.of_outcome(Outcome(JOB, 0, Tier.SURPLUS, Reason.SURPLUS, "no quota"))

    assert event is not None
    assert (event.reason, event.message, event.warning) == ("TrainersRefused", "no quota", True)


def test_nothing_made_and_nothing_refused_is_nothing_to_tell() -> None:
    """A lost race for the books is nobody's concern."""
    assert reports.of_outcome(Outcome(JOB, 0, Tier.SURPLUS, Reason.SURPLUS)) is None


def test_releases_of_one_reason_are_one_event() -> None:
    """The first five by name."""
    (event,) = reports.of_releases([_release(i) for i in range(7)], JOBS)

    assert event.message == "released p0, p1, p2, p3, p4 and 2 more: AboveMax (7 live, 2 wanted)"


@pytest.mark.parametrize(("count", "end"), [(5, "p3, p4: A"), (6, "p4 and 1 more: A")])
def test_five_names_fit_a_line(count: int, end: str) -> None:
    """What is beyond is counted, and nothing is said of nobody."""
    (event,) = reports.of_releases([_release(i) for i in range(count)], JOBS)

    assert end in event.message


def test_releases_of_a_job_that_is_gone_are_not_told() -> None:
    """There is nothing to hang the event on."""
    assert reports.of_releases([_release(0)], {}) == []


def test_each_reason_has_its_own_event() -> None:
    """A person asks why, one reason at a time."""
    other = replace(_release(1), reason=Reason.FAIR_SHARE)
    events = reports.of_releases([_release(0), other], JOBS)

    assert [e.message.partition(":")[0] for e in events] == ["released p0", "released p1"]


@pytest.mark.parametrize(
    ("reason", "helps"),
    [
        (Reason.WAITING_FOR_ROOM, "lower min-trainers"),
        (Reason.FITS_NO_NODE, "node selector"),
        (Reason.QUOTA_REACHED, "raise the quota"),
        (Reason.BACKING_OFF, "logs"),
    ],
)
def test_a_job_below_its_minimum_is_told_what_helps(reason: Reason, helps: str) -> None:
    """A warning that names numbers, cause and way out."""
    (event,) = reports.of_changes(_plan(reason), {}, JOBS)

    assert event.message.startswith(f"0 of at least 2 trainers: {sentence(reason, FIGURES)}; ")
    assert helps in event.message
    assert event.warning


def test_a_job_that_is_wrong_is_told_even_with_its_trainers() -> None:
    """Its annotations were broken while it ran."""
    (event,) = reports.of_changes(_plan(Reason.INVALID, 5), {}, JOBS)

    assert event.message.startswith("left with 5 trainers: min-trainers is x; correct that")
    assert "create it again" in event.message


@pytest.mark.parametrize(("target", "told"), [(0, 1), (1, 0)])
def test_a_job_without_a_minimum_is_told_of_when_it_has_nobody(target: int, told: int) -> None:
    """With one trainer it runs."""
    owner = job("net", 0)
    events = reports.of_changes(_plan(Reason.WAITING_FOR_ROOM, target), {}, {owner.key: owner})

    assert len(events) == told


def test_a_job_at_its_minimum_is_not_told_of_and_one_below_is() -> None:
    """The minimum here is two."""
    events = [
        reports.of_changes(_plan(Reason.WAITING_FOR_ROOM, target), {}, JOBS) for target in (1, 2)
    ]

    assert [len(found) for found in events] == [1, 0]


def test_a_release_is_recorded_with_its_node() -> None:
    """Who asks why a trainer went wants to know where it was."""
    found = reports.of_release(_release(3), 7.0)

    assert (found.about, found.code, found.at_s) == ("pod ml/p3", Reason.ABOVE_MAX, 7.0)
    assert found.figures == {"live": 7, "wanted": 2, "node": "n0"}


def test_a_refusal_is_recorded_with_what_was_made() -> None:
    """And with what the API server said."""
    found = reports.of_refusal(Outcome(JOB, 1, Tier.SURPLUS, Reason.SURPLUS, "no quota"), 7.0)

    assert (found.about, found.code, found.at_s) == ("job ml/net", Reason.REFUSED, 7.0)
    assert found.figures == {"error": "no quota", "made": 1, "tier": "surplus"}


@pytest.mark.parametrize(
    ("plan", "before"),
    [
        (_plan(Reason.WAITING_FOR_ROOM), {JOB.key: Reason.WAITING_FOR_ROOM}),
        (_plan(Reason.QUOTA_REACHED, 2), {}),
        (_plan(Reason.NO_ROOM), {}),
        (Plan(jobs=(JobPlan("ml/gone", 0, 0, Reason.WAITING_FOR_ROOM, {}, 0.0),)), {}),
    ],
)
def test_what_is_known_normal_or_gone_is_not_told(plan: Plan, before: dict[str, Reason]) -> None:
    """The same as last time, at the minimum, an everyday reason, a job that is gone."""
    assert reports.of_changes(plan, before, JOBS) == []
