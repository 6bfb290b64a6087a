from datetime import UTC

from runtime import clock


def test_wall_clocks_agree() -> None:
    """The aware time and the seconds since the epoch are one clock, in UTC."""
    now = clock.now()

    assert now.tzinfo is UTC
    assert abs(now.timestamp() - clock.epoch_s()) < 1.0


def test_monotonic_clock_never_goes_back() -> None:
    """Two readings are in order."""
    first = clock.monotonic_s()

    assert clock.monotonic_s() >= first
