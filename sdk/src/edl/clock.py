"""The only module that reads clocks and draws random jitter."""

import random
import time


def monotonic_s() -> float:
    """Returns the time of the monotonic clock in seconds, of which only differences are meaningful."""
    return time.monotonic()


def epoch_s() -> float:
    """Returns the time of the wall clock in seconds since 1970."""
    return time.time()


def jitter() -> float:
    """Returns a random factor from 0.5 to 1, which spreads the retries of trainers that lost their master."""
    return random.uniform(0.5, 1)  # noqa: S311 - spreads load, keeps no secret
