"""The benchmark of the SDK, as short as it can be."""

import pytest

from bench import sdk
from bench.benchmark import Setting


@pytest.mark.soak  # its master is a process
@pytest.mark.timeout(180)
def test_the_sdk_reports_the_issues_bar() -> None:
    """Against a real master in a process of its own."""
    result = sdk.run(Setting((10,), 1, lambda _: None))
    criteria = {criterion.name: criterion for criterion in result.criteria}

    assert criteria["sdk_overhead_per_batch_us"].limit == 100.0
    assert criteria["sdk_overhead_per_batch_us"].value is not None
    assert result.raw["elastic"]["batches"] == result.raw["plain"]["batches"] == 49
