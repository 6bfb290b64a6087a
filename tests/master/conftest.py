"""How many schedules to play."""

import pytest
from hypothesis import settings

from tests.master.test_schedules import SCHEDULES


@pytest.fixture
def schedules() -> int:
    """Of each batch: as many times more as the profile has more examples."""
    return SCHEDULES * max(
        1, settings().max_examples // settings.get_profile("default").max_examples
    )
