"""A member's copy of the group's progress, and its lease table."""

import json
import math

from edl.sync.group_progress import GroupProgress

from tests.sdk.sync.leases import lease, plan

ONE, TWO = lease(0), lease(1)


def _progress() -> GroupProgress:
    """A group's progress with two leased tasks."""
    progress = GroupProgress()
    for task in (ONE, TWO):
        progress.lease_table.add(task)
    return progress


def _step(progress: GroupProgress, name: str, start: int, count: int) -> None:
    progress.flight = plan(name, (ONE, start, count))
    progress.advance({"loss": 0.5})


def test_a_steps_records_are_entered_one_exchange_later() -> None:
    """Only then is it certain that every member has made it."""
    progress = _progress()
    _step(progress, "p1", 0, 10)

    assert (progress.step, progress.records, progress.last_plan) == (1, 10, "p1")
    assert not progress.lease_table.has_report
    assert progress.commit()
    assert [entry["task"] for entry in progress.lease_table.report().done] == [ONE.task]
    assert not progress.commit()


def test_the_next_step_enters_the_one_before() -> None:
    """No separate commit is needed."""
    progress = _progress()
    _step(progress, "p1", 0, 10)
    progress.flight = plan("p2", (TWO, 10, 5))
    progress.advance({})

    assert progress.lease_table.has_report
    assert (progress.step, progress.records) == (2, 15)


def test_nothing_advances_without_a_step_in_flight() -> None:
    """A round without a step changes nothing."""
    progress = _progress()
    progress.advance({"loss": 1.0})

    assert (progress.step, progress.last_plan, progress.metrics) == (0, "", {})


def test_what_is_no_number_is_not_reported_to_the_master() -> None:
    """The step's own metrics contain it."""
    progress = _progress()
    progress.flight = plan("p1", (ONE, 0, 10))
    progress.advance({"loss": math.nan, "accuracy": 0.5})
    progress.commit()

    assert progress.lease_table.report().done[0]["metrics"] == {"accuracy": 0.5}


def test_steps_left_out_are_counted_in_a_row() -> None:
    """A step that is made ends the row."""
    progress = _progress()
    rows = []
    for name, skipped in (("p1", True), ("p2", True), ("p3", False), ("p4", True)):
        progress.flight = plan(name, (ONE, 0, 1))
        progress.advance({}, skipped=skipped)
        rows.append(progress.skipped_in_a_row)

    assert (rows, progress.skipped) == ([1, 2, 0, 1], 3)


def test_a_newcomer_gets_all_of_it_as_if_everybody_had_made_the_newest_step() -> None:
    """Including the lease table; the newcomer's lease table stays the same object."""
    progress, other = _progress(), GroupProgress()
    lease_table = other.lease_table
    _step(progress, "p1", 0, 10)
    other.flight = plan("mine", (TWO, 10, 1))

    other.load(json.loads(json.dumps(progress.dump())))

    assert other.lease_table is lease_table
    assert (other.step, other.records, other.last_plan, other.metrics) == (
        1,
        10,
        "p1",
        {"loss": 0.5},
    )
    assert other.flight is None
    assert other.lease_table.leases() == [(TWO, 0)]
    assert [entry["task"] for entry in other.lease_table.report().done] == [ONE.task]
    assert progress.lease_table.leases() == [
        (ONE, 0),
        (TWO, 0),
    ]  # not yet: not all may have made it


def test_a_report_names_the_step_that_was_made_and_the_one_in_flight() -> None:
    """By their plans."""
    progress = _progress()
    _step(progress, "p1", 0, 5)
    progress.flight = plan("p2", (ONE, 5, 5))
    progress.term = 3

    assert progress.state_report("t", before=7).json() == {
        "trainer": "t",
        "term": 3,
        "step": 1,
        "lineage": progress.lineage,
        "made": "p1",
        "flight": "p2",
        "before": 7,
        "parts": False,
    }


def test_equal_lineages_mean_the_same_origin_and_the_same_steps_in_the_same_rounds() -> None:
    """The state itself is not read for it."""
    first, second, redone, other = (_progress() for _ in range(4))
    first.start_lineage()
    for progress in (second, redone):
        progress.load_position(first.position_json())
    other.start_lineage()
    begun = first.lineage
    for progress, round_number in ((first, 3), (second, 3), (redone, 4), (other, 3)):
        progress.flight = plan("p1", (ONE, 0, 5))
        progress.advance({}, round_number=round_number)

    assert first.lineage == second.lineage
    assert len({begun, first.lineage, redone.lineage, other.lineage}) == 4
    old_checkpoint = {k: v for k, v in first.position_json().items() if k != "lineage"}
    redone.load_position(old_checkpoint)
    assert redone.lineage not in (0, first.lineage)


def test_settled_tasks_are_sent_twice_and_forgotten() -> None:
    """The first message may be lost: the call can break when only some members have received it."""
    leader, other = _progress(), _progress()
    leader.start_leading()
    assert leader.newly_settled() == []
    leader.lease_table.discard([ONE.task])

    settled = [leader.newly_settled(), leader.newly_settled(), leader.newly_settled()]

    assert settled == [[ONE.task], [ONE.task], []]
    other.settle(settled[0])
    assert other.lease_table.tracked_tasks() == {TWO.task}


def test_who_leads_next_tells_again_what_it_heard_last() -> None:
    """Others may not have received it, for the previous leader died while it sent it."""
    progress = _progress()
    progress.settle([ONE.task])
    progress.start_leading()

    assert progress.newly_settled() == [ONE.task]
    assert progress.newly_settled() == []


def test_a_task_that_is_leased_again_is_not_sent_as_settled() -> None:
    """It was settled, and is tracked again."""
    leader = _progress()
    leader.start_leading()
    leader.lease_table.discard([ONE.task])
    leader.newly_settled()
    leader.lease_table.add(ONE)

    assert leader.newly_settled() == []
