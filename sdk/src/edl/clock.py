"""The only module that reads clocks and draws random jitter."""

import random
import time


def monotonic_s() -> float:
    """Returns the monotonic clock's time in seconds; only differences between two times are meaningful."""
    return time.monotonic()


def epoch_s() -> float:
    """Returns the wall clock's time in seconds since 1970."""
    return time.time()


def jitter() -> float:
    """Returns a random factor from 0.5 to 1, which spreads the retries of trainers that lost their master."""
    return random.uniform(0.5, 1)  # noqa: S311 - jitter spreads load and need not be secret
