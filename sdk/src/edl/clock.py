"""The only module that reads clocks and draws random jitter."""

import random
import time


def monotonic_s() -> float:
    """Returns the monotonic clock; only differences of its readings have a meaning."""
    return time.monotonic()


def epoch_s() -> float:
    """Returns the wall clock, in seconds since 1970."""
    return time.time()


def jitter() -> float:
    """Returns a random factor from 0.5 to 1: spreads the retries of trainers that lost the same master."""
    return random.uniform(0.5, 1)  # noqa: S311 - spreads load, keeps no secret
