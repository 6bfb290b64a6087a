"""The benchmark of the master, as short as it can be."""

import pytest

from bench import master
from bench.benchmark import Setting


@pytest.mark.soak
@pytest.mark.timeout(180)
def test_the_master_reports_the_issues_bars() -> None:
    """Against a real master in a process of its own; each figure was measured."""
    result = master.run(Setting((10,), 1, lambda _: None))
    limits = {
        criterion.name: criterion.limit
        for criterion in result.criteria
        if criterion.limit is not None
    }

    assert limits == {
        "master_tasks_per_second": 5_000.0,
        "master_work_p99_at_5000_ms": 20.0,
        "master_killed_to_serving_s": 3.0,
        "master_million_tasks_mb": 200.0,
    }
    assert all(criterion.value for criterion in result.criteria)
