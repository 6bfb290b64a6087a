from datetime import UTC

from runtime import clock

_RESOLUTION_S = 0.000_002
"""An aware time has whole microseconds."""


def test_wall_clocks_agree() -> None:
    """The aware time and the seconds since the epoch are one clock, in UTC."""
    before_s = clock.epoch_s()
    now = clock.now()
    after_s = clock.epoch_s()

    assert now.tzinfo is UTC
    assert before_s - _RESOLUTION_S <= now.timestamp() <= after_s + _RESOLUTION_S


def test_monotonic_clock_never_goes_back() -> None:
    """Two readings are in order."""
    first = clock.monotonic_s()

    assert clock.monotonic_s() >= first
