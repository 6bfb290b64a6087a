from dataclasses import replace

import pytest

from policy.decisions import Figures, sentence
from policy.names import Tier
from policy.planning.plan import JobPlan, Plan, Release
from policy.reasons import Reason
from reconciler.records import plan_reports
from reconciler.trainers.controller import CreationResult
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
    event = plan_reports.creation_event(CreationResult(JOB, 3, Tier.SURPLUS, "no"))

    assert event is not None
    assert (event.reason, event.message) == ("TrainersMade", "Created 3 surplus trainers")
    assert not event.warning


def test_a_refusal_is_a_warning() -> None:
    """With the answer of the API server."""
    event = plan_reports.creation_event(CreationResult(JOB, 0, Tier.SURPLUS, "no quota"))

    assert event is not None
    assert (event.reason, event.message, event.warning) == ("TrainersRefused", "no quota", True)


def test_nothing_made_and_nothing_refused_is_nothing_to_tell() -> None:
    """A lost race for the accounting does not concern users."""
    assert plan_reports.creation_event(CreationResult(JOB, 0, Tier.SURPLUS)) is None


def test_releases_of_one_reason_are_one_event() -> None:
    """The first five by name."""
    (event,) = plan_reports.release_events([_release(i) for i in range(7)], JOBS)

    assert (
        event.message
        == "Released p0, p1, p2, p3, p4 and 2 more: AboveMax (its job has 7 trainers and may keep 2)"
    )


@pytest.mark.parametrize(("count", "end"), [(5, "p3, p4: A"), (6, "p4 and 1 more: A")])
def test_five_names_fit_a_line(count: int, end: str) -> None:
    """Further ones are counted; without further ones there is no count."""
    (event,) = plan_reports.release_events([_release(i) for i in range(count)], JOBS)

    assert end in event.message


def test_releases_of_a_job_that_is_gone_are_not_told() -> None:
    """There is nothing to hang the event on."""
    assert plan_reports.release_events([_release(0)], {}) == []


def test_each_reason_has_its_own_event() -> None:
    """One event for each reason."""
    other = replace(_release(1), reason=Reason.FAIR_SHARE)
    events = plan_reports.release_events([_release(0), other], JOBS)

    assert [e.message.partition(":")[0] for e in events] == ["Released p0", "Released p1"]


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
    (event,) = plan_reports.shortage_events(_plan(reason), {}, JOBS)

    assert event.message.startswith(
        f"The Job has 0 of at least 2 trainers: {sentence(reason, FIGURES)}; "
    )
    assert helps in event.message
    assert event.warning


def test_a_job_that_is_wrong_is_told_even_with_its_trainers() -> None:
    """Its annotations were broken while it ran."""
    (event,) = plan_reports.shortage_events(_plan(Reason.INVALID, 5), {}, JOBS)

    assert event.message.startswith("The Job keeps 5 trainers: min-trainers is x; correct the Job")
    assert "create it again" in event.message


def test_a_job_that_is_kept_out_is_told_where_to_look() -> None:
    """It keeps its trainers; the error is in the log of the reconciler."""
    (event,) = plan_reports.shortage_events(_plan(Reason.QUARANTINED, 5), {}, JOBS)

    detail = sentence(Reason.QUARANTINED, FIGURES)
    help_ = "see the reconciler's log; if you wrote the Job's annotations, correct them"
    assert event.message == f"The Job keeps 5 trainers: {detail}; {help_}"


@pytest.mark.parametrize(("target", "count"), [(0, 1), (1, 0)])
def test_a_job_without_a_minimum_is_told_of_when_it_has_nobody(target: int, count: int) -> None:
    """With one trainer it runs."""
    owner = job("net", 0)
    events = plan_reports.shortage_events(
        _plan(Reason.WAITING_FOR_ROOM, target), {}, {owner.key: owner}
    )

    assert len(events) == count


def test_a_job_at_its_minimum_is_not_told_of_and_one_below_is() -> None:
    """The minimum here is two."""
    events = [
        plan_reports.shortage_events(_plan(Reason.WAITING_FOR_ROOM, target), {}, JOBS)
        for target in (1, 2)
    ]

    assert [len(group) for group in events] == [1, 0]


def test_a_release_is_recorded_with_its_node() -> None:
    """It names the node, because that explains the release."""
    decision = plan_reports.release_decision(_release(3), 7.0)

    assert (decision.about, decision.code, decision.at_s) == ("pod ml/p3", Reason.ABOVE_MAX, 7.0)
    assert decision.figures == {"live": 7, "wanted": 2, "node": "n0"}


def test_a_refusal_is_recorded_with_what_was_made() -> None:
    """And with the answer of the API server."""
    decision = plan_reports.refusal_decision(CreationResult(JOB, 1, Tier.SURPLUS, "no quota"), 7.0)

    assert (decision.about, decision.code, decision.at_s) == ("job ml/net", Reason.REFUSED, 7.0)
    assert decision.figures == {"error": "no quota", "made": 1, "tier": "surplus"}


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
    """The same reason as last time, a job at its minimum, an everyday reason, a deleted job."""
    assert plan_reports.shortage_events(plan, before, JOBS) == []
