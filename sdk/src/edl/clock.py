"""The one place that reads clocks and makes jitter."""

import random
import time


def monotonic_s() -> float:
    """A clock that never goes back; only differences mean something."""
    return time.monotonic()


def epoch_s() -> float:
    """The wall clock, in seconds since 1970."""
    return time.time()


def jitter() -> float:
    """Between 0.5 and 1: spreads retries of many trainers, which all lost the same master."""
    return random.uniform(0.5, 1)  # noqa: S311 - spreads load, keeps no secret
