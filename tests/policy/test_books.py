import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy import books
from policy.snapshot import Books
from tests.support.strategies import CALM


@st.composite
def _books(draw: st.DrawFn) -> Books:
    next_id = draw(st.integers(0, 300))
    count = st.integers(0, 10**6)
    failures = draw(st.integers(0, 20))
    return Books(
        next_id=next_id,
        open=frozenset(draw(st.sets(st.integers(0, next_id - 1)))) if next_id else frozenset(),
        succeeded=draw(count),
        failed=draw(count),
        disrupted=draw(count),
        released=draw(count),
        failures_in_row=failures,
        last_failure_s=draw(st.floats(0, 4e9)) if failures else 0.0,
    )


@CALM
@given(_books())
def test_books_read_back(kept: Books) -> None:
    """What is written on a Job is read as the same books."""
    assert books.parse(books.show(kept)) == kept


def test_books_are_short() -> None:
    """Neighbouring ids are one range, and sums of nothing are left out."""
    kept = Books(next_id=9, open=frozenset({0, 1, 2, 5, 7, 8}), released=3)

    assert books.show(kept) == '{"next":9,"open":"0-2,5,7-8","released":3}'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "[]",
        "7",
        "null",
        '{"next": "many"}',
        '{"next": Infinity}',
        '{"next": 5, "open": "0-x"}',
        '{"next": 5, "open": "-3"}',
        '{"next": 5, "failed": []}',
        "[" * 100_000,
        '{"next": ' + "9" * 5_000 + "}",
        '{"next": 5, "failuresInRow": 1, "lastFailure": Infinity}',
        '{"next": 5, "failuresInRow": 1, "lastFailure": NaN}',
    ],
)
def test_nonsense_gives_empty_books(text: str) -> None:
    """An annotation is a user's to edit: what cannot be read must not stop a job."""
    assert books.parse(text) == Books()


def test_impossible_values_are_mended() -> None:
    """Negative sums count as none, and ids that were never handed out are dropped."""
    text = json.dumps({"next": 3, "open": "1-1000000000000", "failed": -4, "failuresInRow": -1})

    assert books.parse(text) == Books(next_id=3, open=frozenset({1, 2}))


def test_long_nonsense_is_given_up_before_it_fills_the_memory() -> None:
    """Ranges for a hundred million ids: of them some hundred thousand are read, a few megabytes."""
    text = json.dumps({"next": 10**9, "open": ",".join(["0-1999999"] * 50)})
    books.parse(text)
    tracemalloc.start()
    try:
        kept = books.parse(text)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert kept == Books()
    assert peak_bytes < 20_000_000


def test_as_many_ids_as_a_job_can_have_are_read() -> None:
    """A hundred thousand; one more is nonsense."""
    most = 100_000

    assert len(books.parse(json.dumps({"next": most + 9, "open": f"0-{most - 1}"})).open) == most
    assert books.parse(json.dumps({"next": most + 9, "open": f"0-{most - 1},{most}"})) == Books()


def test_reserved_ids_are_new_and_open() -> None:
    """Ids only grow; asking for none changes nothing."""
    kept = Books(next_id=4, open=frozenset({2}))

    after, ids = books.reserve(kept, 2)

    assert ids == (4, 5)
    assert after == Books(next_id=6, open=frozenset({2, 4, 5}))
    assert books.reserve(kept, 0) == (kept, ())
