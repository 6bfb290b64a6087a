"""How far a member is, and what its copy of the book says."""

import json
import math

from edl.sync.course import Course

from tests.sdk.sync.leases import lease, plan

ONE, TWO = lease(0), lease(1)


def _course() -> Course:
    """One that holds two tasks."""
    found = Course()
    for each in (ONE, TWO):
        found.book.take(each)
    return found


def _step(course: Course, name: str, start: int, count: int) -> None:
    course.flight = plan(name, (ONE, start, count))
    course.advance({"loss": 0.5})


def test_a_steps_records_are_entered_one_exchange_later() -> None:
    """Only then is it certain that every member has made it."""
    course = _course()
    _step(course, "p1", 0, 10)

    assert (course.step, course.records, course.made) == (1, 10, "p1")
    assert not course.book.tells
    assert course.commit()
    assert [entry["task"] for entry in course.book.report().done] == [ONE.task]
    assert not course.commit()


def test_the_next_step_enters_the_one_before() -> None:
    """No commit of its own is needed."""
    course = _course()
    _step(course, "p1", 0, 10)
    course.flight = plan("p2", (TWO, 10, 5))
    course.advance({})

    assert course.book.tells
    assert (course.step, course.records) == (2, 15)


def test_nothing_advances_without_a_step_in_flight() -> None:
    """A round without a step changes nothing."""
    course = _course()
    course.advance({"loss": 1.0})

    assert (course.step, course.made, course.metrics) == (0, "", {})


def test_what_is_no_number_is_not_told_the_master() -> None:
    """The step's own metrics keep it."""
    course = _course()
    course.flight = plan("p1", (ONE, 0, 10))
    course.advance({"loss": math.nan, "accuracy": 0.5})
    course.commit()

    assert course.book.report().done[0]["metrics"] == {"accuracy": 0.5}


def test_steps_left_out_are_counted_in_a_row() -> None:
    """A step that is made ends the row."""
    course = _course()
    rows = []
    for name, skipped in (("p1", True), ("p2", True), ("p3", False), ("p4", True)):
        course.flight = plan(name, (ONE, 0, 1))
        course.advance({}, skipped=skipped)
        rows.append(course.in_a_row)

    assert (rows, course.skipped) == ([1, 2, 0, 1], 3)


def test_a_newcomer_gets_all_of_it_as_if_everybody_had_made_the_newest_step() -> None:
    """The book with it; the newcomer's book stays the same object."""
    course, other = _course(), Course()
    book = other.book
    _step(course, "p1", 0, 10)
    other.flight = plan("mine", (TWO, 10, 1))

    other.load(json.loads(json.dumps(course.dump())))

    assert other.book is book
    assert (other.step, other.records, other.made, other.metrics) == (1, 10, "p1", {"loss": 0.5})
    assert other.flight is None
    assert other.book.leases() == [(TWO, 0)]
    assert [entry["task"] for entry in other.book.report().done] == [ONE.task]
    assert course.book.leases() == [(ONE, 0), (TWO, 0)]  # not yet: not all may have made it


def test_hello_names_the_step_that_was_made_and_the_one_in_flight() -> None:
    """By their plans."""
    course = _course()
    _step(course, "p1", 0, 5)
    course.flight = plan("p2", (ONE, 5, 5))
    course.term = 3

    assert course.hello("t", 7).json() == {
        "trainer": "t",
        "term": 3,
        "step": 1,
        "digest": 7,
        "made": "p1",
        "flight": "p2",
    }


def test_settled_tasks_are_told_twice_and_forgotten() -> None:
    """Once may be in vain: the exchange can break when some members have heard it."""
    leader, other = _course(), _course()
    leader.leads()
    assert leader.settled() == []
    leader.book.settle([ONE.task])

    told = [leader.settled(), leader.settled(), leader.settled()]

    assert told == [[ONE.task], [ONE.task], []]
    other.forget(told[0])
    assert other.book.known() == {TWO.task}


def test_who_leads_next_tells_again_what_it_heard_last() -> None:
    """Others may not have heard it, for the one before died while it told them."""
    course = _course()
    course.forget([ONE.task])
    course.leads()

    assert course.settled() == [ONE.task]
    assert course.settled() == []


def test_a_task_that_is_leased_again_is_not_told_as_settled() -> None:
    """It was settled, and is known again."""
    leader = _course()
    leader.leads()
    leader.book.settle([ONE.task])
    leader.settled()
    leader.book.take(ONE)

    assert leader.settled() == []
