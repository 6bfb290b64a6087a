"""The leader's queue: leases in, steps' records out, in the master's order."""

import threading

import pytest
from edl.errors import EdlError
from edl.master.leases import LeaseTable
from edl.master.protocol import Lease
from edl.sync.lease_queue import LeaseQueue
from edl.sync.plans import Span
from hypothesis import given
from hypothesis import strategies as st

from tests.sdk.sync.leases import lease


class Desk:
    """A queue, its lease table, and the calls that fill it."""

    def __init__(self, low: int = 100, task_records: int = 10) -> None:
        self.lease_table = LeaseTable()
        self.lease_queue = LeaseQueue(self.lease_table, low, task_records)

    def bring(self, *leases: Lease) -> None:
        """Adds leases as the fetcher does."""
        for lease_ in leases:
            self.lease_table.add(lease_)
        self.lease_queue.add_leases(leases)

    def leases_wanted(self) -> int:
        """How many tasks it would lease now."""
        with self.lease_queue.lock:
            return self.lease_queue.leases_wanted()


def _records(spans: tuple[Span, ...] | None) -> list[tuple[str, int, int]] | None:
    return None if spans is None else [(span.lease.task, span.start, span.count) for span in spans]


def test_a_plan_takes_from_several_tasks_in_order() -> None:
    """As many records as were requested."""
    desk = Desk()
    desk.bring(lease(0), lease(1), lease(2))

    assert _records(desk.lease_queue.next_step(15, 0)) == [
        ("points/0/0", 0, 10),
        ("points/0/1", 10, 5),
    ]
    assert _records(desk.lease_queue.next_step(15, 0)) == [
        ("points/0/1", 15, 5),
        ("points/0/2", 20, 10),
    ]


def test_too_little_is_nothing_until_no_more_comes() -> None:
    """Then the rest is a smaller step, and the end is None."""
    desk = Desk()
    desk.bring(lease(0))

    assert desk.lease_queue.next_step(15, 0) == ()
    desk.lease_queue.mark_exhausted(done=False)
    assert _records(desk.lease_queue.next_step(15, 0)) == [("points/0/0", 0, 10)]
    desk.lease_queue.mark_exhausted(done=True)
    assert desk.lease_queue.next_step(15, 0) is None


def test_while_the_master_is_away_too_little_waits() -> None:
    """A step would be small by chance."""
    desk = Desk()
    desk.bring(lease(0))
    desk.lease_queue.mark_exhausted(done=False)
    desk.lease_queue.mark_away()

    assert desk.lease_queue.next_step(15, 0) == ()


def test_leases_between_table_and_queue_come_once() -> None:
    """A round begins after the fetcher has entered leases, and before it queues them."""
    desk = Desk()
    desk.bring(lease(0))
    desk.lease_table.add(lease(1))
    desk.lease_queue.rewind()
    first = desk.lease_queue.next_step(10, 0)
    second = desk.lease_queue.next_step(10, 0)
    desk.lease_queue.add_leases((lease(1),))

    assert _records(first) == [("points/0/0", 0, 10)]
    assert second == ()
    assert _records(desk.lease_queue.next_step(10, 0)) == [("points/0/1", 10, 10)]
    assert desk.lease_queue.next_step(10, 0) == ()


def test_a_step_never_has_records_of_two_epochs() -> None:
    """The first epoch's last step is smaller instead."""
    desk = Desk()
    desk.bring(lease(0), lease(0, epoch=1))

    assert _records(desk.lease_queue.next_step(15, 0)) == [("points/0/0", 0, 10)]
    assert desk.lease_queue.next_step(15, 0) == ()


def test_what_the_master_gave_to_others_is_left_out() -> None:
    """Its lease is over."""
    desk = Desk()
    desk.bring(lease(0), lease(1), lease(2))
    desk.lease_table.drop_lost([lease(0).ref], ["points/0/0"])

    assert _records(desk.lease_queue.next_step(20, 0)) == [
        ("points/0/1", 10, 10),
        ("points/0/2", 20, 10),
    ]


def test_plans_that_were_not_trained_are_made_again() -> None:
    """From the position in the lease table."""
    desk = Desk()
    desk.bring(lease(0), lease(1))
    first = desk.lease_queue.next_step(15, 0)
    assert first is not None
    desk.lease_table.record_step([first[0].portion], {})
    desk.lease_table.record_step([first[1].portion], {})
    desk.lease_queue.next_step(5, 0)

    desk.lease_queue.rewind()

    assert _records(desk.lease_queue.next_step(5, 0)) == [("points/0/1", 15, 5)]


def test_a_queue_begins_with_the_leases_of_the_table() -> None:
    """The lease table is that of the previous leader."""
    lease_table = LeaseTable()
    lease_table.add(lease(3))

    assert _records(LeaseQueue(lease_table, 100, 10).next_step(10, 0)) == [("points/0/3", 30, 10)]


def test_an_answer_that_comes_twice_adds_nothing() -> None:
    """A task is queued once."""
    desk = Desk()
    desk.bring(lease(0))
    desk.bring(lease(0))
    desk.lease_queue.mark_exhausted(done=False)

    assert _records(desk.lease_queue.next_step(20, 0)) == [("points/0/0", 0, 10)]


def test_it_leases_until_enough_is_ahead() -> None:
    """Whole tasks, at least one, and none once it is closed."""
    desk = Desk(low=25)
    assert desk.leases_wanted() == 2
    desk.bring(lease(0), lease(1))
    assert desk.leases_wanted() == 1
    desk.bring(lease(2))
    assert desk.leases_wanted() == 0
    desk.lease_queue.next_step(10, 0)
    assert desk.leases_wanted() == 1
    desk.lease_queue.end()
    assert desk.leases_wanted() == 0


def test_it_is_calm_while_half_of_what_is_kept_ahead_is_here() -> None:
    """Then no thread waits for the master, and calls may be rare."""
    desk = Desk(low=40)

    def is_full_enough() -> bool:
        with desk.lease_queue.lock:
            return desk.lease_queue.is_full_enough()

    assert not is_full_enough()
    desk.bring(lease(0), lease(1))
    assert is_full_enough()
    desk.lease_queue.next_step(10, 0)
    assert not is_full_enough()
    desk.bring(lease(2), lease(3))
    assert is_full_enough()
    desk.lease_queue.end()
    assert not is_full_enough()


def test_a_step_may_have_more_tasks_than_are_usually_held() -> None:
    """Tasks of two records, and steps of 256: it leases until it has the records of a step."""
    desk = Desk(low=16 * 256, task_records=2)
    for index in range(64):
        desk.bring(lease(index, 2))
    assert desk.lease_queue.next_step(256, 0) == ()
    assert desk.leases_wanted() == 64
    for index in range(64, 128):
        desk.bring(lease(index, 2))

    assert desk.leases_wanted() == 0
    spans = desk.lease_queue.next_step(256, 0)
    assert spans is not None
    assert len(spans) == 128


@given(sizes=st.lists(st.integers(1, 30), min_size=1, max_size=20), ask=st.integers(1, 60))
def test_every_record_is_planned_once_and_in_order(sizes: list[int], ask: int) -> None:
    """For any sizes of tasks and steps."""
    desk = Desk(low=1)
    begin = 0
    for index, size in enumerate(sizes):
        task = lease(index)
        desk.bring(Lease(task.task, 1, task.kind, "points", 0, begin, begin + size, None, 60.0))
        begin += size
    desk.lease_queue.mark_exhausted(done=True)
    planned: list[int] = []
    while (spans := desk.lease_queue.next_step(ask, 0)) is not None:
        planned += [at for span in spans for at in range(span.start, span.start + span.count)]

    assert planned == list(range(begin))


def test_whoever_waits_is_woken_by_what_comes() -> None:
    """A leader does not sleep through its tasks."""
    desk = Desk()
    steps: list[list[tuple[str, int, int]] | None] = []
    waiter = threading.Thread(
        target=lambda: steps.append(_records(desk.lease_queue.next_step(10, 600)))
    )
    waiter.start()
    desk.bring(lease(0))
    waiter.join(60)

    assert steps == [[("points/0/0", 0, 10)]]


def test_a_closed_queue_is_not_the_end_of_the_data() -> None:
    """The job stops: nothing more is planned, but the data does not count as trained."""
    desk = Desk()
    desk.bring(lease(0))
    desk.lease_queue.end()

    assert desk.lease_queue.next_step(10, 10) == ()


def test_what_ended_it_is_raised() -> None:
    """The first error, at every call."""
    desk = Desk()
    desk.lease_queue.end(EdlError("the master refuses"))
    desk.lease_queue.end(EdlError("another"))

    for _ in range(2):
        with pytest.raises(EdlError, match="the master refuses"):
            desk.lease_queue.next_step(10, 10)


def test_the_fetcher_is_woken_when_there_is_something_to_report() -> None:
    """Acknowledgements do not wait for the next lease."""
    desk = Desk()
    woken = threading.Event()

    def listen() -> None:
        with desk.lease_queue.lock:
            ready.set()
            if desk.lease_queue.call_due.wait(60):
                woken.set()

    ready = threading.Event()
    listener = threading.Thread(target=listen)
    listener.start()
    assert ready.wait(60)
    desk.lease_queue.report_ready()
    listener.join(60)

    assert woken.is_set()


def test_a_task_that_was_lost_and_is_leased_again_is_planned() -> None:
    """The old lease is void, and must not hide the new one."""
    desk = Desk()
    desk.bring(lease(0))
    desk.lease_table.drop_lost([{"task": "points/0/0", "attempt": 1}], ["points/0/0"])

    desk.bring(lease(0, attempt=2))
    spans = desk.lease_queue.next_step(10, 0)

    assert spans is not None
    assert [span.lease.attempt for span in spans] == [2]
