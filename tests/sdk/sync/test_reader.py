"""Records are read ahead, in the order of the steps."""

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from edl import wire
from edl.errors import RecordError, RoundOver
from edl.sync.reader import Piece, Reader, Unreadable

from tests.sdk.sync.leases import lease, plan


class Numbers:
    """A source whose records are their own numbers; some cannot be read."""

    def __init__(self) -> None:
        self.bad: int | None = None
        self.error: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()

    def shape(self) -> wire.Json:
        """As in `Source`."""
        return {"records": 100}

    def read(self, file: str | None, start: int, end: int) -> list[int]:
        """As in `Source`."""
        assert file is None
        self.gate.wait(5)
        if self.error is not None:
            raise self.error
        if self.bad is not None and start <= self.bad < end:
            raise RecordError(self.bad, "it is cut short")
        return list(range(start, end))

    def batch(self, blocks: Sequence[Any]) -> Any:
        """As in `Source`."""
        return [one for block in blocks for one in block]


@pytest.fixture
def source() -> Numbers:
    """One that can read everything."""
    return Numbers()


@pytest.fixture
def reader(source: Numbers) -> Iterator[Reader]:
    """A reader of it."""
    found = Reader(source)
    yield found
    source.gate.set()
    found.close(5)


ONE, TWO = lease(0), lease(1)


def test_steps_come_in_the_order_in_which_they_were_ordered(reader: Reader) -> None:
    """Each with the micro-batches that are this member's, and their sizes."""
    plans = [plan("p1", (ONE, 0, 6), (TWO, 10, 2)), plan("p2", (TWO, 12, 4))]
    reader.order(plans[0], [(1, plans[0].spans)])
    reader.order(plans[1], [(0, plans[1].spans[:1])])

    assert reader.take(plans[0]) == [Piece(1, 8, [0, 1, 2, 3, 4, 5, 10, 11])]
    assert reader.take(plans[1]) == [Piece(0, 4, [12, 13, 14, 15])]


def test_a_member_without_a_part_reads_nothing(reader: Reader) -> None:
    """There are fewer micro-batches than members."""
    one = plan("p1", (ONE, 0, 6))
    reader.order(one, [])

    assert reader.take(one) == []


def test_steps_that_nobody_takes_are_passed_over(reader: Reader) -> None:
    """Whatever was ordered before."""
    plans = [plan(f"p{i}", (ONE, i, 1)) for i in range(3)]
    for one in plans:
        reader.order(one, [(0, one.spans)])

    assert reader.take(plans[2]) == [Piece(0, 1, [2])]


def test_a_record_that_cannot_be_read_names_its_task(reader: Reader, source: Numbers) -> None:
    """The one of several that holds it, and the record."""
    source.bad = 11
    one = plan("p1", (ONE, 0, 6), (TWO, 10, 2))
    reader.order(one, [(0, one.spans)])

    assert reader.take(one) == Unreadable(TWO, "it is cut short", 11)


def test_a_programs_own_reader_may_raise_anything(reader: Reader, source: Numbers) -> None:
    """It is told in one line."""
    source.error = OSError("the disk\nis gone")
    one = plan("p1", (ONE, 0, 6))
    reader.order(one, [(0, one.spans)])

    assert reader.take(one) == Unreadable(ONE, "OSError: the disk is gone", None)


def test_it_reads_a_few_steps_ahead_and_no_more(reader: Reader) -> None:
    """Memory stays bounded; all come in the end."""
    plans = [plan(f"p{i}", (ONE, 0, 1)) for i in range(20)]
    for one in plans:
        reader.order(one, [(0, one.spans)])

    assert all(reader.take(one) == [Piece(0, 1, [0])] for one in plans)


def test_whoever_waits_when_it_is_closed_hears_that_the_round_is_over(
    reader: Reader, source: Numbers
) -> None:
    """Even while a read is under way."""
    source.gate.clear()
    one = plan("p1", (ONE, 0, 1))
    reader.order(one, [(0, one.spans)])
    errors: list[Exception] = []

    def take() -> None:
        try:
            reader.take(one)
        except RoundOver as error:
            errors.append(error)

    taker = threading.Thread(target=take)
    taker.start()
    reader.close(0)
    taker.join(5)

    assert str(errors[0]) == "the reader was closed"


def test_closing_does_not_wait_for_a_full_queue(reader: Reader) -> None:
    """The thread is told, wherever it is."""
    plans = [plan(f"p{i}", (ONE, 0, 1)) for i in range(20)]
    for one in plans:
        reader.order(one, [(0, one.spans)])
    reader.take(plans[0])
    reader.close(5)

    assert not any(thread.name == "edl-sync-reader" for thread in threading.enumerate())
