"""Hypothesis profiles: of `make test`, `make soak`, `make properties` and `make mutants`.

See tests.support.strategies too.
"""

import os

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.support.leftovers"]

settings.register_profile(
    "quick",  # how long an example takes says nothing on a machine that is busy
    deadline=None,
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("quick")
settings.register_profile(
    "soak",
    deadline=None,
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "thorough",
    deadline=None,
    max_examples=5_000,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "mutants",  # few: a test runs once for each fault; the same, or chance decides what is noticed
    database=None,
    deadline=None,
    derandomize=True,
    max_examples=15,
    suppress_health_check=[HealthCheck.too_slow],
)


def pytest_xdist_auto_num_workers() -> int:
    """A worker for each core that this process may use; with psutil, xdist counts others too."""
    return len(os.sched_getaffinity(0))


@pytest.fixture(scope="session")
def thorough() -> bool:
    """Whether `make properties` runs: random tests without Hypothesis play many more rounds."""
    return settings().max_examples > settings.get_profile("default").max_examples
