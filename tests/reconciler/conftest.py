"""A cluster in memory, a reconciler there, and a bench for its writes."""

from collections.abc import Iterator

import pytest

from tests.reconciler.waiting import Writers
from tests.reconciler.world import Process, World
from tests.reconciler.write_bench import Bench


@pytest.fixture
def world() -> World:
    """Two nodes, each with room for three trainers of 5 CPU and one CPU more."""
    return World(16, 16)


@pytest.fixture
def process(world: World) -> Iterator[Process]:
    """A reconciler there."""
    reconciler = Process(world)
    yield reconciler
    reconciler.stop()


@pytest.fixture
def bench() -> Iterator[Bench]:
    """Everything on the caller's time."""
    with Writers(2) as pool:
        yield Bench(pool)
