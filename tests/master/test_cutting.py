"""How data sets become tasks."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from master.cutting import MOST_RECORDS, Cutting, Span
from master.dataset import Dataset


@pytest.mark.parametrize(
    ("records", "step", "spans"),
    [
        (4, 2, [Span(0, 2), Span(2, 4)]),
        (5, 2, [Span(0, 2), Span(2, 4), Span(4, 5)]),
        (1, 100, [Span(0, 1)]),
    ],
)
def test_the_last_task_may_be_shorter(records: int, step: int, spans: list[Span]) -> None:
    """All others are alike."""
    cutting = Cutting({"records": records, "task_records": step})

    assert cutting.count == len(spans)
    assert [cutting.span(index) for index in range(len(spans))] == spans
    assert cutting.records == records


def test_a_task_stays_inside_one_file() -> None:
    """Files without records have no task."""
    files = [{"name": "a", "records": 3}, {"name": "b", "records": 0}, {"name": "c", "records": 2}]
    cutting = Cutting({"files": files, "task_records": 2})

    assert [cutting.span(index) for index in range(3)] == [
        Span(0, 2, "a"),
        Span(2, 3, "a"),
        Span(0, 2, "c"),
    ]
    assert (cutting.count, cutting.records) == (3, 5)


def test_a_stream_has_no_end() -> None:
    """The millionth task is there as the first is."""
    cutting = Cutting({"stream": True, "task_records": 10})

    assert cutting.count is None
    assert cutting.records is None
    assert cutting.span(10**6) == Span(10**7, 10**7 + 10)


def test_only_tasks_that_exist_are_known() -> None:
    """A report of another one is refused: from the first task to the last, and no further."""
    cutting = Cutting({"records": 25, "task_records": 10})
    stream = Cutting({"stream": True, "task_records": 10})
    most = MOST_RECORDS // 10

    assert [cutting.has(index) for index in (-1, 0, 2, 3)] == [False, True, True, False]
    assert [stream.has(index) for index in (-1, 0, most - 1, most)] == [False, True, True, False]


@given(st.lists(st.integers(0, 30), min_size=1, max_size=6), st.integers(1, 7))
def test_every_record_is_in_one_task(sizes: list[int], step: int) -> None:
    """Whatever the files."""
    files: list[dict[str, Any]] = [{"name": str(n), "records": s} for n, s in enumerate(sizes)]
    cutting = Cutting({"files": files, "task_records": step})
    assert cutting.count is not None
    spans = [cutting.span(index) for index in range(cutting.count)]

    found = [(span.file, record) for span in spans for record in range(span.start, span.end)]
    assert found == [(str(n), record) for n, size in enumerate(sizes) for record in range(size)]
    assert all(0 < span.size <= step for span in spans)


def test_a_stream_ends_where_numbers_do() -> None:
    """Its tasks are leased up to record 2^53 and no further."""
    shape = {"stream": True, "task_records": MOST_RECORDS // 2, "epochs": 1, "kind": "training"}
    stream = Dataset("s", {**shape, "shuffle_seed": 1, "overlap": False})

    assert [one["end"] for one in stream.lease("a", 0, 9)] == [MOST_RECORDS // 2, MOST_RECORDS]
    assert not stream.free
