"""Waiting for what another thread is about to do."""

import time
from collections.abc import Callable

from runtime import clock


def until(fact: Callable[[], object], within_s: float = 4.0) -> None:
    """Waits until `fact()` is true; AssertionError if it does not become so."""
    end = clock.monotonic_s() + within_s
    while not fact():
        assert clock.monotonic_s() < end, f"still false after {within_s} s"
        time.sleep(0.002)
