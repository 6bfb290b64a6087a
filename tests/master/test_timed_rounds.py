"""A thousand members whose calls take the master time: freezes are found soon, and nobody else is dropped."""

import pytest

from tests.master.timed_crowd import TimedCrowd

COUNT = 1_000
CALL_S, ANSWER_S = 0.000_3, 0.000_1
"""As on one core of today."""
SLOW = 10
"""Times slower."""


def _crowd(times: float = 1.0, *, is_older: bool = False) -> TimedCrowd:
    return TimedCrowd(COUNT, times * CALL_S, times * ANSWER_S, is_older=is_older)


def test_a_freeze_among_a_thousand_is_known_in_a_second_and_a_half() -> None:
    """One report begins the probe, and no others delay its answers."""
    crowd = _crowd()
    took_s = crowd.freeze([333])

    assert took_s <= 1.2
    assert crowd.dropped == ["t-333"]
    assert crowd.reports <= 20


@pytest.mark.parametrize("frozen", [range(20), range(0, COUNT, 100), [COUNT - 1]])
def test_it_does_not_matter_who_freezes(frozen: range | list[int]) -> None:
    """Members of the first ranks report first; those of the next follow at once."""
    crowd = _crowd()
    took_s = crowd.freeze(frozen)

    assert took_s <= 1.4
    assert sorted(crowd.dropped) == sorted(f"t-{number}" for number in frozen)


@pytest.mark.parametrize("is_older", [False, True])
def test_a_slow_master_drops_nobody_else(*, is_older: bool) -> None:
    """A probe takes it seconds: answers that it has not read are no silence."""
    crowd = _crowd(SLOW, is_older=is_older)
    took_s = crowd.freeze([333])

    assert crowd.dropped == ["t-333"]
    assert took_s > 3.0


def test_members_on_a_slow_machine_stay() -> None:
    """Fifty of them answer half a second later than all others."""
    crowd = _crowd()
    for member in crowd.members[100:150]:
        member.late_s = 0.5
    crowd.freeze([333])

    assert crowd.dropped == ["t-333"]


def test_members_that_answer_too_late_come_back() -> None:
    """Their machine stood still for longer than others wait; none of them is lost for good."""
    crowd = _crowd()
    for member in crowd.members[100:110]:
        member.late_s = 1.5
    crowd.freeze([333])
    assert len(crowd.dropped) == 11
    for member in crowd.members[100:110]:
        member.late_s = 0.0
    crowd.run(3.0)

    assert len(crowd.master.round.slots) == COUNT - 1


def test_steps_in_which_all_wait_for_one_bring_few_reports() -> None:
    """Else a thousand with each step, which take the master a third of a core; nobody is dropped."""
    crowd = _crowd()
    steps = 20
    for _ in range(steps):
        crowd.wait()
        crowd.run(0.8)
        crowd.go_on()
        crowd.run(0.2)

    assert 0 < crowd.reports <= 35 * steps
    assert crowd.dropped == []
    assert crowd.master.round.number == 1
