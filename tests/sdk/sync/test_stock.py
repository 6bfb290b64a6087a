"""The leader's stock: tasks in, plans out, in the master's order."""

import threading

import pytest
from edl.book import Book
from edl.errors import EdlError
from edl.sync.shares import Span
from edl.sync.stock import Stock
from edl.wire import Lease
from hypothesis import given
from hypothesis import strategies as st

from tests.sdk.sync.leases import lease


class Desk:
    """A stock, and what fills it."""

    def __init__(self, low: int = 100, task_records: int = 10) -> None:
        self.book, self.away = Book(), False
        self.stock = Stock(self.book, low, task_records, lambda: self.away)

    def bring(self, *leases: Lease) -> None:
        """As the courier does."""
        for one in leases:
            self.book.take(one)
        self.stock.stock(leases)

    def want(self) -> int:
        """How many tasks it would lease now."""
        with self.stock.lock:
            return self.stock.want()


def _told(found: tuple[Span, ...] | None) -> list[tuple[str, int, int]] | None:
    return None if found is None else [(one.lease.task, one.start, one.count) for one in found]


def test_a_plan_takes_from_several_tasks_in_order() -> None:
    """As many records as were asked for."""
    desk = Desk()
    desk.bring(lease(0), lease(1), lease(2))

    assert _told(desk.stock.take(15, 0)) == [("points/0/0", 0, 10), ("points/0/1", 10, 5)]
    assert _told(desk.stock.take(15, 0)) == [("points/0/1", 15, 5), ("points/0/2", 20, 10)]


def test_too_little_is_nothing_until_no_more_comes() -> None:
    """Then the rest is a smaller step, and the end is None."""
    desk = Desk()
    desk.bring(lease(0))

    assert desk.stock.take(15, 0) == ()
    desk.stock.dry(over=False)
    assert _told(desk.stock.take(15, 0)) == [("points/0/0", 0, 10)]
    desk.stock.dry(over=True)
    assert desk.stock.take(15, 0) is None


def test_while_the_master_is_away_too_little_waits() -> None:
    """A step would be small by chance."""
    desk = Desk()
    desk.bring(lease(0))
    desk.away = True
    desk.stock.dry(over=False)

    assert desk.stock.take(15, 0) == ()


def test_a_step_never_has_records_of_two_epochs() -> None:
    """The first epoch's last step is smaller instead."""
    desk = Desk()
    desk.bring(lease(0), lease(0, epoch=1))

    assert _told(desk.stock.take(15, 0)) == [("points/0/0", 0, 10)]
    assert desk.stock.take(15, 0) == ()


def test_what_the_master_gave_to_others_is_left_out() -> None:
    """Its lease is over."""
    desk = Desk()
    desk.bring(lease(0), lease(1), lease(2))
    desk.book.lose([lease(0).ref], ["points/0/0"])

    assert _told(desk.stock.take(20, 0)) == [("points/0/1", 10, 10), ("points/0/2", 20, 10)]


def test_plans_that_were_not_trained_are_made_again() -> None:
    """From where the book is."""
    desk = Desk()
    desk.bring(lease(0), lease(1))
    first = desk.stock.take(15, 0)
    assert first is not None
    desk.book.trained([first[0].portion], {})
    desk.book.trained([first[1].portion], {})
    desk.stock.take(5, 0)

    desk.stock.rewind()

    assert _told(desk.stock.take(5, 0)) == [("points/0/1", 15, 5)]


def test_a_stock_begins_with_what_the_book_holds() -> None:
    """The book is that of the leader before."""
    book = Book()
    book.take(lease(3))

    assert _told(Stock(book, 100, 10, lambda: False).take(10, 0)) == [("points/0/3", 30, 10)]


def test_an_answer_that_comes_twice_adds_nothing() -> None:
    """A task is in stock once."""
    desk = Desk()
    desk.bring(lease(0))
    desk.bring(lease(0))
    desk.stock.dry(over=False)

    assert _told(desk.stock.take(20, 0)) == [("points/0/0", 0, 10)]


def test_it_leases_until_enough_is_ahead() -> None:
    """Whole tasks, one at least, and none once it is closed."""
    desk = Desk(low=25)
    assert desk.want() == 2
    desk.bring(lease(0), lease(1))
    assert desk.want() == 1
    desk.bring(lease(2))
    assert desk.want() == 0
    desk.stock.take(10, 0)
    assert desk.want() == 1
    desk.stock.end()
    assert desk.want() == 0


def test_it_is_calm_while_half_of_what_is_kept_ahead_is_here() -> None:
    """Then nobody waits for the master: calls may be few."""
    desk = Desk(low=40)

    def calm() -> bool:
        with desk.stock.lock:
            return desk.stock.calm()

    assert not calm()
    desk.bring(lease(0), lease(1))
    assert calm()
    desk.stock.take(10, 0)
    assert not calm()
    desk.bring(lease(2), lease(3))
    assert calm()
    desk.stock.end()
    assert not calm()


def test_a_step_may_have_more_tasks_than_are_usually_held() -> None:
    """Tasks of two records, and steps of 256: it leases on until a step is there."""
    desk = Desk(low=16 * 256, task_records=2)
    for index in range(64):
        desk.bring(lease(index, 2))
    assert desk.stock.take(256, 0) == ()
    assert desk.want() == 64
    for index in range(64, 128):
        desk.bring(lease(index, 2))

    assert desk.want() == 0
    found = desk.stock.take(256, 0)
    assert found is not None
    assert len(found) == 128


@given(sizes=st.lists(st.integers(1, 30), min_size=1, max_size=20), ask=st.integers(1, 60))
def test_every_record_is_planned_once_and_in_order(sizes: list[int], ask: int) -> None:
    """Whatever tasks and steps are like."""
    desk = Desk(low=1)
    begin = 0
    for index, size in enumerate(sizes):
        one = lease(index)
        desk.bring(Lease(one.task, 1, one.kind, "points", 0, begin, begin + size, None, 60.0))
        begin += size
    desk.stock.dry(over=True)
    planned: list[int] = []
    while (found := desk.stock.take(ask, 0)) is not None:
        planned += [at for span in found for at in range(span.start, span.start + span.count)]

    assert planned == list(range(begin))


def test_whoever_waits_is_woken_by_what_comes() -> None:
    """A leader does not sleep through its tasks."""
    desk = Desk()
    found: list[list[tuple[str, int, int]] | None] = []
    waiter = threading.Thread(target=lambda: found.append(_told(desk.stock.take(10, 10))))
    waiter.start()
    desk.bring(lease(0))
    waiter.join(5)

    assert found == [[("points/0/0", 0, 10)]]


def test_a_closed_stock_is_not_the_end_of_the_data() -> None:
    """The job stops: nothing more is planned, but nobody may think that all was trained."""
    desk = Desk()
    desk.bring(lease(0))
    desk.stock.end()

    assert desk.stock.take(10, 10) == ()


def test_what_ended_it_is_raised() -> None:
    """The first error, at every call."""
    desk = Desk()
    desk.stock.end(EdlError("the master refuses"))
    desk.stock.end(EdlError("another"))

    for _ in range(2):
        with pytest.raises(EdlError, match="the master refuses"):
            desk.stock.take(10, 10)


def test_the_courier_hears_when_there_is_something_to_tell() -> None:
    """Acknowledgements do not wait for the next lease."""
    desk = Desk()
    heard = threading.Event()

    def listen() -> None:
        with desk.stock.lock:
            ready.set()
            if desk.stock.tell.wait(5):
                heard.set()

    ready = threading.Event()
    listener = threading.Thread(target=listen)
    listener.start()
    assert ready.wait(5)
    desk.stock.spoken()
    listener.join(5)

    assert heard.is_set()


def test_a_task_that_was_lost_and_is_leased_again_is_planned() -> None:
    """The old lease is worth nothing, and must not stand in the way of the new one."""
    desk = Desk()
    desk.bring(lease(0))
    desk.book.lose([{"task": "points/0/0", "attempt": 1}], ["points/0/0"])

    desk.bring(lease(0, attempt=2))
    found = desk.stock.take(10, 0)

    assert found is not None
    assert [one.lease.attempt for one in found] == [2]
