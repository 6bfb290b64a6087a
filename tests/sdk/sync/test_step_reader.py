"""Records are read ahead, in the order of the steps."""

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from edl.errors import RecordError, RoundOver
from edl.master import protocol
from edl.sources.leased_records import LeasedRecords
from edl.sync.step_reader import MicroBatch, StepReader, UnreadableTask

from tests.sdk.sync.leases import lease, plan


class Numbers:
    """A source whose records are their own numbers; some cannot be read."""

    def __init__(self) -> None:
        self.bad: int | None = None
        self.error: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()

    def shape(self) -> protocol.Json:
        """As in `Source`."""
        return {"records": 100}

    def read(self, file: str | None, start: int, end: int) -> list[int]:
        """As in `Source`."""
        assert file is None
        self.gate.wait(60)
        if self.error is not None:
            raise self.error
        if self.bad is not None and start <= self.bad < end:
            raise RecordError(self.bad, "it is cut short")
        return list(range(start, end))

    def batch(self, blocks: Sequence[Any]) -> Any:
        """As in `Source`."""
        return [number for block in blocks for number in block]


@pytest.fixture
def source() -> Numbers:
    """One that can read everything."""
    return Numbers()


@pytest.fixture
def reader(source: Numbers) -> Iterator[StepReader]:
    """A reader of it."""
    step_reader = StepReader(LeasedRecords(source, {"records": 100}))
    yield step_reader
    source.gate.set()
    step_reader.close(5)


ONE, TWO = lease(0), lease(1)


def test_steps_come_in_the_order_in_which_they_were_ordered(reader: StepReader) -> None:
    """Each with this member's micro-batches, and their sizes."""
    plans = [plan("p1", (ONE, 0, 6), (TWO, 10, 2)), plan("p2", (TWO, 12, 4))]
    reader.request(plans[0], [(1, plans[0].spans)])
    reader.request(plans[1], [(0, plans[1].spans[:1])])

    assert reader.wait_for(plans[0]) == [MicroBatch(1, 8, [0, 1, 2, 3, 4, 5, 10, 11])]
    assert reader.wait_for(plans[1]) == [MicroBatch(0, 4, [12, 13, 14, 15])]


def test_a_member_without_a_part_reads_nothing(reader: StepReader) -> None:
    """There are fewer micro-batches than members."""
    step = plan("p1", (ONE, 0, 6))
    reader.request(step, [])

    assert reader.wait_for(step) == []


def test_steps_that_nobody_takes_are_passed_over(reader: StepReader) -> None:
    """Whatever was ordered before."""
    plans = [plan(f"p{i}", (ONE, i, 1)) for i in range(3)]
    for step in plans:
        reader.request(step, [(0, step.spans)])

    assert reader.wait_for(plans[2]) == [MicroBatch(0, 1, [2])]


def test_a_record_that_cannot_be_read_names_its_task(reader: StepReader, source: Numbers) -> None:
    """The one of several that holds it, and the record."""
    source.bad = 11
    step = plan("p1", (ONE, 0, 6), (TWO, 10, 2))
    reader.request(step, [(0, step.spans)])

    assert reader.wait_for(step) == UnreadableTask(TWO, "it is cut short", 11, transient=False)


def test_a_programs_own_reader_may_raise_anything(reader: StepReader, source: Numbers) -> None:
    """The reason is one line."""
    source.error = OSError(5, "the disk\nis gone")
    step = plan("p1", (ONE, 0, 6))
    reader.request(step, [(0, step.spans)])

    assert reader.wait_for(step) == UnreadableTask(
        ONE, "OSError: [Errno 5] the disk is gone", None, transient=True
    )


def test_it_reads_a_few_steps_ahead_and_no_more(reader: StepReader) -> None:
    """Memory stays bounded; all steps are read in the end."""
    plans = [plan(f"p{i}", (ONE, 0, 1)) for i in range(20)]
    for step in plans:
        reader.request(step, [(0, step.spans)])

    assert all(reader.wait_for(step) == [MicroBatch(0, 1, [0])] for step in plans)


def test_whoever_waits_when_it_is_closed_hears_that_the_round_is_over(
    reader: StepReader, source: Numbers
) -> None:
    """Even while a read is under way."""
    source.gate.clear()
    step = plan("p1", (ONE, 0, 1))
    reader.request(step, [(0, step.spans)])
    errors: list[Exception] = []

    def wait_for() -> None:
        try:
            reader.wait_for(step)
        except RoundOver as error:
            errors.append(error)

    taker = threading.Thread(target=wait_for)
    taker.start()
    reader.close(0)
    taker.join(60)

    assert str(errors[0]) == "the reader was closed"


def test_closing_does_not_wait_for_a_full_queue(reader: StepReader) -> None:
    """The thread ends, wherever it waits."""
    plans = [plan(f"p{i}", (ONE, 0, 1)) for i in range(20)]
    for step in plans:
        reader.request(step, [(0, step.spans)])
    reader.wait_for(plans[0])
    reader.close(5)

    assert not any(thread.name == "edl-sync-reader" for thread in threading.enumerate())
