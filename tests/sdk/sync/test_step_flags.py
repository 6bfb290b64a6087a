"""The flags and metrics behind a gradient, summed over members."""

import numpy as np
import pytest
from edl.errors import DataError
from edl.sync import step_flags
from edl.sync.step_flags import StepFlags
from hypothesis import given
from hypothesis import strategies as st

NUMBERS = st.floats(-1e3, 1e3, width=32)


def _sum(tails: list[StepFlags]) -> list[StepFlags]:
    """Sums them up, and lets each read the sums."""
    summed = np.zeros(step_flags.SIZE, np.float32)
    for flags in tails:
        raw = np.empty(step_flags.SIZE, np.float32)
        flags.write(raw)
        summed += raw
    names = sorted({name for flags in tails for name in flags.metrics})
    for flags in tails:
        flags.read(summed, names)
    return tails


@given(losses=st.lists(NUMBERS, min_size=1, max_size=8))
def test_a_steps_metrics_are_weighted_means(losses: list[float]) -> None:
    """Each micro-batch counts by its share of the records, whichever member has computed it."""
    tails = [StepFlags() for _ in losses]
    for flags, loss in zip(tails, losses, strict=True):
        flags.add({"loss": loss, "accuracy": 1.0}, 1 / len(losses))

    summed = _sum(tails)

    assert summed[0].metrics["loss"] == pytest.approx(sum(losses) / len(losses), abs=0.01)
    assert summed[0].metrics["accuracy"] == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("place", [0, 999])
def test_one_number_that_is_not_finite_is_seen(number: float, place: int) -> None:
    """Wherever it is; numbers whose squares are infinite are finite."""
    flat = np.full(1000, 3e38, np.float32)
    assert step_flags.is_finite(flat)
    assert step_flags.is_finite(flat[:0])
    flat[place] = number
    assert not step_flags.is_finite(flat)


def test_metrics_of_other_names_are_noticed_by_all_members() -> None:
    """Also by those that computed nothing; by place, a loss would be taken for an accuracy."""
    tails = [StepFlags(), StepFlags(), StepFlags()]
    tails[0].add({"loss": 2.0, "accuracy": 0.5}, 0.5)
    tails[1].add({"loss": 4.0, "auc": 0.25}, 0.5)
    own = [dict(flags.metrics) for flags in tails]

    assert [flags.same_names for flags in _sum(tails)] == [False] * 3
    assert [flags.metrics for flags in tails] == own
    assert step_flags.sum_by_name(own) == {"loss": 3.0, "accuracy": 0.25, "auc": 0.125}


@pytest.mark.parametrize("members", [1, 3, 4096])
def test_equal_names_of_many_members_are_equal(members: int) -> None:
    """The sums that compare them are exact."""
    flags = StepFlags(metrics={"loss": 1.0, "accuracy": 1.0})
    raw = np.empty(step_flags.SIZE, np.float32)
    flags.write(raw)
    summed = np.zeros_like(raw)
    for _ in range(members):
        summed += raw
    flags.read(summed, [])
    assert flags.same_names
    assert flags.metrics == {"loss": members, "accuracy": members}


def test_flags_are_counted() -> None:
    """Members that want a change, leave, have a non-finite loss, or cannot read."""
    summed = _sum(
        [StepFlags(switch=1, leaving=1), StepFlags(switch=1, nan=1), StepFlags(unreadable=1)]
    )

    for flags in summed:
        assert (flags.switch, flags.leaving, flags.nan, flags.unreadable) == (2, 1, 1, 1)


def test_one_that_computed_nothing_reads_the_same_metrics() -> None:
    """More members than micro-batches: some have no names of their own."""
    idle, busy = StepFlags(), StepFlags()
    busy.add({"loss": 2.0, "accuracy": 0.5}, 1.0)

    for flags in _sum([idle, busy]):
        assert flags.metrics == {"loss": 2.0, "accuracy": 0.5}


def test_too_many_metrics_are_named() -> None:
    """Before anything is sent."""
    many = StepFlags(metrics={f"m{i}": 0.0 for i in range(17)})

    with pytest.raises(DataError, match="17 metrics, but a step carries 16 at most"):
        many.write(np.empty(step_flags.SIZE, np.float32))
