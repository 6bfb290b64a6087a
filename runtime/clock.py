"""The one place that reads clocks; decisions take `now` as an argument instead."""

import time
from datetime import UTC, datetime


def now() -> datetime:
    """The wall clock, aware, UTC."""
    return datetime.now(UTC)


def epoch_s() -> float:
    """The wall clock in seconds since the epoch."""
    return time.time()


def monotonic_s() -> float:
    """A clock that never goes back; only differences mean something."""
    return time.monotonic()
