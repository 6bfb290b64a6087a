"""A cluster that the extender is asked about."""

import pytest

from tests.extender.bench import Bench


@pytest.fixture
def bench() -> Bench:
    """Two nodes: room for one trainer and one CPU more, and an empty one."""
    new_bench = Bench()
    new_bench.add_node("n0", 6)
    new_bench.add_node("n1", 18)
    new_bench.look()
    return new_bench
