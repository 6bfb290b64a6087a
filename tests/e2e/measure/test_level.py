"""Step functions: sums of spans, and what is read from them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2e.measure.level import Level, WeightedSpan

_LEVEL = Level.of([WeightedSpan(0, 10), WeightedSpan(5, 15, 2), WeightedSpan(20)])


@pytest.mark.parametrize(
    ("time_s", "value"), [(-1, 0), (0, 1), (4.9, 1), (5, 3), (10, 2), (15, 0), (20, 1), (99, 1)]
)
def test_a_value_holds_from_its_change_on(time_s: float, value: int) -> None:
    """A change counts from its own moment on."""
    assert _LEVEL.at(time_s) == value


def test_before_is_the_value_that_a_change_replaces() -> None:
    """`before` reads the limit from the left."""
    assert (_LEVEL.before(5), _LEVEL.before(5.5), _LEVEL.before(0), _LEVEL.before(-1)) == (
        1,
        3,
        0,
        0,
    )


def test_pieces_cover_the_window_without_gaps() -> None:
    """The constant pieces of a window follow each other from its begin to its end."""
    assert list(_LEVEL.pieces(-2, 7)) == [(-2, 0, 0), (0, 5, 1), (5, 7, 3)]
    assert list(_LEVEL.pieces(30, 31)) == [(30, 31, 1)]
    assert list(_LEVEL.pieces(7, 7)) == []


def test_integral_mean_and_peak() -> None:
    """They are exact over any window, also an empty one."""
    assert _LEVEL.integral(0, 20) == 5 * 1 + 5 * 3 + 5 * 2
    assert _LEVEL.mean(0, 10) == 2
    assert _LEVEL.mean(5, 5) == 3
    assert _LEVEL.peak(0, 20) == 3
    assert _LEVEL.peak(10, 10) == 2


def test_first_names_the_moment_a_condition_begins_to_hold() -> None:
    """A condition that holds from the start is met at the start; one that never does is None."""
    assert _LEVEL.first(1, 20, lambda value: value >= 3) == 5
    assert _LEVEL.first(6, 20, lambda value: value >= 3) == 6
    assert _LEVEL.first(0, 20, lambda value: value >= 4) is None


def test_a_span_that_ends_before_it_starts_counts_nothing() -> None:
    """Such spans come from pods that were given up before the patience was over."""
    assert Level.of([WeightedSpan(5, 5), WeightedSpan(5, 4)]) == Level()


@given(
    st.lists(
        st.tuples(st.integers(0, 50), st.none() | st.integers(0, 50), st.integers(1, 5)),
        max_size=12,
    ),
    st.integers(0, 60),
)
def test_a_level_is_the_sum_of_its_spans(
    spans: list[tuple[int, int | None, int]], time_s: int
) -> None:
    """At every moment the level is the weight of the spans that contain it."""
    level = Level.of(WeightedSpan(*span) for span in spans)
    expected = sum(
        weight for start, end, weight in spans if start <= time_s and (end is None or time_s < end)
    )
    assert level.at(time_s) == expected
