"""What tests of loops share."""

import time
from collections.abc import Callable
from typing import Any

import edl
from edl import clock

from tests.sdk.support.fake_master import Task
from tests.sdk.support.master_server import Server

LIMIT_S = 60.0
"""Less than the time-out of a test, so that what was waited for is named."""


def flat(batches: Any) -> list[int]:
    """All records of all batches."""
    return [number for batch in batches for number in batch]


def numbers(size: int | None) -> edl.Dataset:
    """A data set of the numbers from 0 on."""
    return edl.from_function("train", int, size)


def run_after_each(batches: Any, act: Callable[[], object]) -> None:
    """Acts after each batch."""
    for _ in batches:
        act()


def until(true: Any, limit_s: float = LIMIT_S) -> None:
    """Waits for something that happens sooner or later; the limit only ends a hang."""
    until_s = clock.monotonic_s() + limit_s
    while not true():
        assert clock.monotonic_s() < until_s, f"it did not happen within {limit_s:g} s"
        time.sleep(0.005)


def tasks(server: Server) -> list[Task]:
    """All that the master has, as it is now."""
    with server.master.changed:
        return list(server.master.state.tasks.values())
