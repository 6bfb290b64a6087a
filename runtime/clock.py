"""The only module that reads clocks; decisions take `now` as an argument instead."""

import time
from datetime import UTC, datetime


def now() -> datetime:
    """Returns the wall clock as an aware UTC datetime."""
    return datetime.now(UTC)


def epoch_s() -> float:
    """Returns the wall clock in seconds since the epoch."""
    return time.time()


def monotonic_s() -> float:
    """Returns the time on a monotonic clock in seconds; only differences are meaningful."""
    return time.monotonic()
