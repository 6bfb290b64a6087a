"""Waiting for what another thread is about to do."""

import time
from collections.abc import Callable

from runtime import clock

LIMIT_S = 60.0
"""Ends a hang."""


def until(fact: Callable[[], object]) -> None:
    """Waits until `fact()` is true; AssertionError if it does not become so."""
    end = clock.monotonic_s() + LIMIT_S
    while not fact():
        assert clock.monotonic_s() < end, f"still false after {LIMIT_S} s"
        time.sleep(0.005)
