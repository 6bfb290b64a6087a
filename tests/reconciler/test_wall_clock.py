"""A wall clock that is set while the reconciler runs."""

import pytest

from reconciler.watchdog import CLOCK_TOLERANCE_S, WallClock


class Clocks:
    """Both clocks of a machine."""

    def __init__(self) -> None:
        self.epoch_s = 1_800_000_000.0
        self.monotonic_s = 50.0

    def advance(self, seconds: float) -> None:
        """Time passes."""
        self.epoch_s += seconds
        self.monotonic_s += seconds


@pytest.mark.parametrize(
    ("step_s", "was_set_back"),
    [(-3600.0, True), (-CLOCK_TOLERANCE_S - 1, True), (-1.0, False), (0.0, False), (3600.0, False)],
)
def test_a_clock_that_is_set_back_has_the_process_started_anew(
    step_s: float, was_set_back: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Pauses would last as much longer; a clock that is set forward only ends them. It is logged once."""
    clocks = Clocks()
    wall_clock = WallClock(lambda: clocks.epoch_s, lambda: clocks.monotonic_s)
    clocks.advance(100.0)
    before = wall_clock.was_set_back
    clocks.epoch_s += step_s
    answers = [wall_clock.was_set_back for _ in range(2)]

    assert before is False
    assert answers == [was_set_back] * 2
    assert len(caplog.records) == was_set_back


def test_what_a_clock_was_before_it_was_set_forward_counts_no_more() -> None:
    """An hour forward and back again: pauses that began meanwhile end an hour late."""
    clocks = Clocks()
    wall_clock = WallClock(lambda: clocks.epoch_s, lambda: clocks.monotonic_s)
    clocks.epoch_s += 3600.0
    forward = wall_clock.was_set_back
    clocks.epoch_s -= 3600.0

    assert forward is False
    assert wall_clock.was_set_back is True
