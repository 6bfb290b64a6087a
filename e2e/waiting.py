"""Waiting for something outside of this process, which nothing here announces."""

import time
from collections.abc import Callable
from typing import TypeVar

from runtime import clock

T = TypeVar("T")

_POLL_S, _FACT_POLL_S = 0.2, 0.05


def until(condition: str, look: Callable[[], T], good: Callable[[T], bool], within_s: float) -> T:
    """Polls `look` until `good` accepts the value; returns it, or fails with the last value."""
    deadline_s = clock.monotonic_s() + within_s
    while True:
        value = look()
        if good(value):
            return value
        assert clock.monotonic_s() < deadline_s, (
            f"{condition}: not within {within_s} s; last value: {value}"
        )
        time.sleep(_POLL_S)


def until_true(
    fact: Callable[[], object],
    within_s: float = 30.0,
    story: Callable[[], str] = lambda: "it never came to be",
) -> float:
    """Polls `fact` until it is true; returns after how many seconds.

    Args:
        fact: Is called twenty times a second.
        within_s: Seconds after which it fails.
        story: Explains the failure.
    """
    begun_s = clock.monotonic_s()
    while not fact():
        assert clock.monotonic_s() - begun_s < within_s, story()
        time.sleep(_FACT_POLL_S)
    return clock.monotonic_s() - begun_s
