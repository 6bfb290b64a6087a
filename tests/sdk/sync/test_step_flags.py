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
