"""What a job has changed lately, and what it may take of others then."""

from dataclasses import replace
from functools import reduce

import pytest

from policy.cluster.snapshot import Job, TrainerAccounting
from policy.planning.demand import WINDOW_S, DemandHistory, observe
from tests.support.builders import NOW_S, job

_JOB = job("a", 1, 50)
_LOW, _HIGH = replace(_JOB, weight=1), replace(_JOB, weight=9)


def _after(*seen: tuple[Job, int, float], before: DemandHistory | None = None) -> DemandHistory:
    """The history after plans that saw (job, number of its trainers, seconds from now)."""
    history = reduce(
        lambda history, at: observe(history, at[0], at[1], NOW_S + at[2]),
        seen,
        before if before is not None else observe(None, _JOB, 10, NOW_S),
    )
    assert history is not None
    return history


@pytest.mark.parametrize(
    "change",
    [
        {"weight": 2},
        {"queue": "other"},
        {"min_trainers": 2},
        {"max_trainers": 49},
        {"sizes": (1, 2)},
        {"suspended": True},
    ],
)
def test_all_that_a_user_may_change_of_a_share_is_a_change(change: dict[str, object]) -> None:
    """Each once, whenever it is seen again."""
    changed = replace(_JOB, **change)  # type: ignore[arg-type]
    assert _after((changed, 10, 1), (changed, 10, 2)).changes == 1
    assert _after((changed, 10, 1), (_JOB, 10, 2)).changes == 2


def test_a_job_that_changes_nothing_keeps_no_history() -> None:
    """Not of its size either, which services and other jobs change, and nothing of what it takes."""
    first = observe(None, _JOB, 10, NOW_S)
    assert first.periods == ()
    assert observe(first, replace(_JOB, resource_version="2"), 3, NOW_S + 9) is first
    assert first.after(5) is first
    assert first.until_s == 0.0


@pytest.mark.parametrize("minimum", [True, False])
def test_one_change_is_followed_whatever_it_takes(*, minimum: bool) -> None:
    """As many times as services take away what it has got."""
    once = _after((_HIGH, 10, 1)).after(400)
    assert once.allows(99, 20, minimum=minimum)


def test_after_two_changes_a_job_takes_back_what_it_gave_up_and_four_more() -> None:
    """Between 10 and 30 trainers are 20."""
    history = _after((_HIGH, 10, 1), (_HIGH, 30, 60), (_LOW, 30, 90), (_LOW, 12, 99))
    assert history.allows(24, 30, minimum=True)
    assert not history.allows(25, 30, minimum=True)
    assert history.after(20).allows(4, 30, minimum=False)
    assert not history.after(20).allows(5, 30, minimum=False)


def test_a_job_that_only_grows_is_never_held() -> None:
    """What it takes is then no more than its size has grown by."""
    history = _after((_HIGH, 10, 1), (replace(_HIGH, weight=10), 20, 2)).after(20)
    assert history.allows(5, 31, minimum=False)


def test_failures_count_for_surplus_alone() -> None:
    """Whoever wants to give trainers up lets them fail; a minimum comes back however often they do."""

    def failed_at(at_s: float) -> Job:
        return replace(_JOB, accounting=TrainerAccounting(last_failure_s=NOW_S + at_s))

    once = _after((failed_at(1), 9, 2), (failed_at(1), 10, 3))
    twice = _after((failed_at(5), 9, 6), before=once)
    assert (once.failures, twice.failures, twice.changes) == (1, 2, 0)
    assert once.allows(99, 20, minimum=False)
    assert not twice.after(5).allows(1, 10, minimum=False)
    assert twice.after(5).allows(1, 10, minimum=True)


def test_what_was_taken_is_forgotten_after_an_hour_and_a_period_at_most() -> None:
    """Never before an hour is over, however late in a period it was."""
    history = _after((_HIGH, 10, 0), (_LOW, 10, 599)).after(14)
    late = _after((_HIGH, 10, WINDOW_S + 590), before=history)
    assert history.until_s == NOW_S + 4200
    assert (late.changes, late.gains) == (3, 14)
    over = _after((_LOW, 10, WINDOW_S + 601), before=late)
    assert (over.changes, over.gains) == (2, 0)


def test_a_quiet_hour_ends_the_history() -> None:
    """The next change is the first one again."""
    history = _after((_HIGH, 10, 1), (_LOW, 10, 2), (_LOW, 10, 2000))
    assert len(history.periods) == 2
    assert _after((_LOW, 9, 4300), before=history).periods == ()


def test_a_period_of_the_future_does_not_count() -> None:
    """The clock was put back; otherwise it would be remembered until then."""
    history = _after((_HIGH, 10, 1000), (_LOW, 10, 1001))
    assert _after((_LOW, 10, 10), before=history).periods == ()
