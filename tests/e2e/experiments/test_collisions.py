"""What a run of two schedulers is counted as."""

from dataclasses import replace

import orjson
from rich.console import Console

from e2e.experiments.collisions import document, outcome, table
from e2e.measure.pods import Kind
from tests.e2e.runs import lifetime, timeline


def test_a_run_counts_pods_refusals_and_what_services_paid() -> None:
    """Starts are of services that were not refused; a pod without a node is not counted."""
    refused = lifetime(Kind.SERVICE, uid="a", created_s=1.0, bound_s=2.0, ended_s=2.5)
    run = timeline(
        replace(refused, refused_s=2.5),
        lifetime(Kind.SERVICE, uid="b", created_s=3.0, running_s=4.0),
        lifetime(Kind.SERVICE, uid="c", created_s=1.0, running_s=4.0),
        lifetime(Kind.TRAINER, uid="t", job="job-1", running_s=5.0),
        lifetime(Kind.TRAINER, uid="waits", job="job-1"),
    )
    result = outcome(run, "own-scheduler", 1)

    assert result.bound == {Kind.SERVICE: 3, Kind.TRAINER: 1}
    assert result.refused == {Kind.SERVICE: 1, Kind.TRAINER: 0}
    assert result.service_start_s == (2.0, 3.0)
    assert result.refused_services_s == (2.0,)
    report = orjson.loads(orjson.dumps(document([result])))
    assert report["own-scheduler"]["refused"] == {"service": 1, "trainer": 0}
    console = Console(width=200, record=True)
    console.print(table([result, outcome(timeline(), "extender", 1)]))
    assert "2.00 / 2.00" in console.export_text()
