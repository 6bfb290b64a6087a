"""The Hypothesis profile of `make properties`; tests.support.strategies has that of every run."""

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "thorough",
    deadline=None,
    max_examples=5_000,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)


@pytest.fixture(scope="session")
def thorough() -> bool:
    """Whether `make properties` runs: random tests without Hypothesis play many more rounds."""
    return settings().max_examples > settings.get_profile("default").max_examples
