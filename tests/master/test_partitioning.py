"""How data sets are divided into tasks."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from master.dataset import Dataset
from master.dataset_registry import DatasetRegistry
from master.partitioning import MAX_RECORDS, Partitioning, Span
from runtime.call_checks import RefusedError


@pytest.mark.parametrize(
    ("records", "step", "spans"),
    [
        (4, 2, [Span(0, 2), Span(2, 4)]),
        (5, 2, [Span(0, 2), Span(2, 4), Span(4, 5)]),
        (1, 100, [Span(0, 1)]),
    ],
)
def test_the_last_task_may_be_shorter(records: int, step: int, spans: list[Span]) -> None:
    """All others have the same size."""
    partitioning = Partitioning({"records": records, "task_records": step})

    assert partitioning.count == len(spans)
    assert [partitioning.span(index) for index in range(len(spans))] == spans
    assert partitioning.records == records


def test_a_task_stays_inside_one_file() -> None:
    """Files without records have no task."""
    files = [{"name": "a", "records": 3}, {"name": "b", "records": 0}, {"name": "c", "records": 2}]
    partitioning = Partitioning({"files": files, "task_records": 2})

    assert [partitioning.span(index) for index in range(3)] == [
        Span(0, 2, "a"),
        Span(2, 3, "a"),
        Span(0, 2, "c"),
    ]
    assert (partitioning.count, partitioning.records) == (3, 5)


def test_a_stream_has_no_end() -> None:
    """The millionth task exists like the first."""
    partitioning = Partitioning({"stream": True, "task_records": 10})

    assert partitioning.count is None
    assert partitioning.records is None
    assert partitioning.span(10**6) == Span(10**7, 10**7 + 10)


def test_only_tasks_that_exist_are_known() -> None:
    """Reports of others are refused: from the first task to the last, and no further."""
    partitioning = Partitioning({"records": 25, "task_records": 10})
    stream = Partitioning({"stream": True, "task_records": 10})
    most = MAX_RECORDS // 10

    assert [partitioning.has(index) for index in (-1, 0, 2, 3)] == [False, True, True, False]
    assert [stream.has(index) for index in (-1, 0, most - 1, most)] == [False, True, True, False]


@given(st.lists(st.integers(0, 30), min_size=1, max_size=6), st.integers(1, 7))
def test_every_record_is_in_one_task(sizes: list[int], step: int) -> None:
    """For any sizes of files."""
    files: list[dict[str, Any]] = [{"name": str(n), "records": s} for n, s in enumerate(sizes)]
    partitioning = Partitioning({"files": files, "task_records": step})
    assert partitioning.count is not None
    spans = [partitioning.span(index) for index in range(partitioning.count)]

    places = [(span.file, record) for span in spans for record in range(span.start, span.end)]
    assert places == [(str(n), record) for n, size in enumerate(sizes) for record in range(size)]
    assert all(0 < span.size <= step for span in spans)


def test_a_stream_ends_where_numbers_do() -> None:
    """Its tasks are leased up to record 2^53 and no further."""
    shape = {"stream": True, "task_records": MAX_RECORDS // 2, "epochs": 1, "kind": "training"}
    stream = Dataset("s", {**shape, "shuffle_seed": 1, "overlap": False})

    assert [lease["end"] for lease in stream.lease("a", 0, 9)] == [MAX_RECORDS // 2, MAX_RECORDS]
    assert not stream.is_free("a")


@pytest.mark.parametrize("first", [{"record_order": None}, {}], ids=["none", "of an older release"])
def test_a_job_that_began_with_the_order_of_tasks_keeps_it(first: dict[str, Any]) -> None:
    """A trainer whose SDK permutes records would train other records at the same places."""
    shape = {"files": [{"name": "a", "records": 40}], "task_records": 10, "epochs": 1}
    rest = {"kind": "training", "shuffle_seed": 1, "overlap": False}
    registry = DatasetRegistry()
    registry.describe("train", {**shape, **rest, **first})

    newer = {"records": 40, "task_records": 10, "epochs": 1, "record_order": "feistel-2 f00d"}
    with pytest.raises(RefusedError, match="the order of records of train cannot change") as caught:
        registry.describe("train", {**newer, **rest})

    assert caught.value.field == "record_order"
    assert "\n" not in str(caught.value)
    registry.describe("train", {**shape, **rest, "record_order": None})
