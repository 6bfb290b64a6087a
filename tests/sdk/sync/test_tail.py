"""The numbers at a gradient's end, summed over members."""

import numpy as np
import pytest
from edl.errors import DataError
from edl.sync import tail
from edl.sync.tail import Tail
from hypothesis import given
from hypothesis import strategies as st

NUMBERS = st.floats(-1e3, 1e3, width=32)


def _sum(tails: list[Tail]) -> list[Tail]:
    """What each of them reads once all were summed."""
    summed = np.zeros(tail.SIZE, np.float32)
    for one in tails:
        raw = np.empty(tail.SIZE, np.float32)
        one.write(raw)
        summed += raw
    names = sorted({name for one in tails for name in one.metrics})
    for one in tails:
        one.read(summed, names)
    return tails


@given(losses=st.lists(NUMBERS, min_size=1, max_size=8))
def test_a_steps_metrics_are_weighted_means(losses: list[float]) -> None:
    """Each micro-batch counts by its share of the records, whoever has computed it."""
    tails = [Tail() for _ in losses]
    for one, loss in zip(tails, losses, strict=True):
        one.add({"loss": loss, "accuracy": 1.0}, 1 / len(losses))

    found = _sum(tails)

    assert found[0].metrics["loss"] == pytest.approx(sum(losses) / len(losses), abs=0.01)
    assert found[0].metrics["accuracy"] == pytest.approx(1.0, abs=1e-5)


def test_flags_are_counted() -> None:
    """How many want a change, leave, have no number, or cannot read."""
    found = _sum([Tail(switch=1, leaving=1), Tail(switch=1, nan=1), Tail(unread=1)])

    for one in found:
        assert (one.switch, one.leaving, one.nan, one.unread) == (2, 1, 1, 1)


def test_one_that_computed_nothing_reads_the_same_metrics() -> None:
    """More members than micro-batches: some have no names of their own."""
    idle, busy = Tail(), Tail()
    busy.add({"loss": 2.0, "accuracy": 0.5}, 1.0)

    for one in _sum([idle, busy]):
        assert one.metrics == {"loss": 2.0, "accuracy": 0.5}


def test_too_many_metrics_are_named() -> None:
    """Before anything is sent."""
    many = Tail(metrics={f"m{i}": 0.0 for i in range(17)})

    with pytest.raises(DataError, match="17 metrics, but a step carries 16 at most"):
        many.write(np.empty(tail.SIZE, np.float32))
