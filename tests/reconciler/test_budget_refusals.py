"""How long budgets may keep a surplus trainer."""

import pytest

from reconciler.trainers.budget_refusals import BudgetRefusals

PODS = ("a", "b")


@pytest.mark.parametrize(
    ("times_s", "now_s", "too_long"),
    [
        ((), 100.0, False),
        ((0.0,), 29.0, False),
        ((0.0, 20.0), 30.0, True),
        ((0.0,), 301.0, False),
        ((0.0, 301.0), 320.0, False),
        ((0.0, 301.0, 325.0), 331.0, True),
    ],
)
def test_it_is_too_long_half_a_minute_after_the_first_refusal(
    times_s: tuple[float, ...], now_s: float, too_long: bool
) -> None:
    """After five minutes without one, the next is the first."""
    refusals = BudgetRefusals()
    for time_s in times_s:
        refusals.record("a", time_s, PODS)

    assert refusals.last_too_long("a", now_s) is too_long


def test_pods_that_are_gone_are_forgotten() -> None:
    """There are never more refusals than pods."""
    refusals = BudgetRefusals()
    for uid in PODS:
        refusals.record(uid, 0.0, PODS)
    refusals.record("c", 1.0, ("b", "c"))

    assert not refusals.last_too_long("a", 40.0)
    assert refusals.last_too_long("b", 40.0)
