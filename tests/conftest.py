"""The Hypothesis profile of `make properties`; tests.support.strategies has that of every run."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "thorough",
    deadline=None,
    max_examples=5_000,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
