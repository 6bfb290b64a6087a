"""What the measurement on many nodes counts."""

from dataclasses import replace

from e2e.cluster.components import APISERVER, ETCD, SCHEDULER
from e2e.scale import tables
from e2e.scale.figures import PhaseFigures, ScaleFigures, ended_watches, requests
from e2e.scale.run import Scale

METRICS = """
# TYPE apiserver_request_total counter
apiserver_request_total{code="201",dry_run="",resource="pods",scope="resource",subresource="",verb="POST"} 7
apiserver_request_total{code="200",dry_run="",resource="jobs",scope="resource",subresource="status",verb="PATCH"} 3
apiserver_request_total{code="409",dry_run="",resource="jobs",scope="resource",subresource="status",verb="PATCH"} 2
apiserver_request_total{code="201",dry_run="All",resource="pods",scope="resource",subresource="",verb="POST"} 5
apiserver_request_total{code="200",dry_run="",resource="leases",scope="resource",subresource="",verb="PUT"} 9
apiserver_request_total{code="200",dry_run="",resource="pods",scope="cluster",subresource="",verb="WATCH"} 4
apiserver_request_duration_seconds_count{resource="pods",verb="POST"} 8
apiserver_terminated_watchers_total{group="",resource="pods"} 26
apiserver_terminated_watchers_total{group="apps",resource="replicasets"} 1
"""


def _phase(pods: int, seconds: float, **cpu_s: float) -> PhaseFigures:
    names = {"scheduler": SCHEDULER, "api": APISERVER, "etcd": ETCD, "edl": "reconciler"}
    return PhaseFigures(pods, seconds, {names.get(n, n): s for n, s in cpu_s.items()}, {"w": pods})


def test_only_writes_that_changed_something_count() -> None:
    """Not refused ones, dry runs, reads, or heartbeats, which grow with time alone."""
    assert requests(METRICS) == {"POST pods": 7, "PATCH jobs/status": 3}


def test_watches_of_pods_that_the_server_has_ended_count() -> None:
    """Each makes its client list all pods again; before the first, the metric does not exist."""
    assert ended_watches(METRICS) == 26
    assert ended_watches("") == 0


def test_all_processes_are_in_the_sum_of_both_phases() -> None:
    """Those that have no column of their own as well: kubelets and controllers."""
    run = ScaleFigures(
        _phase(100, 4.0, scheduler=1.0, api=2.0, etcd=0.5, edl=3.0, kwok=0.25),
        _phase(10, 1.0, scheduler=0.5, api=1.0),
        others_percent=0.0,
    )

    assert (run.trainers.pods_per_s, run.burst.seconds) == (25.0, 1.0)
    assert (run.scheduler_s, run.api_s, run.edl_s, run.total_s) == (1.5, 3.5, 3.0, 8.25)


def test_variants_are_compared_with_the_first() -> None:
    """Every figure with its multiple of the first variant's."""
    plain = ScaleFigures(_phase(100, 2.0, api=2.0), _phase(10, 1.0), others_percent=0.0)
    other = ScaleFigures(_phase(100, 4.0, api=3.0), _phase(10, 1.5), others_percent=0.0)
    table = tables.costs({"plain": plain, "other": other})

    cells = [list(column.cells) for column in table.columns]
    assert cells[0] == ["plain", "other"]
    assert [column[1] for column in cells[1:3]] == ["25.0 (0.50)", "1.5 (1.50)"]
    assert cells[6][1] == "3.0 (1.50)"
    assert list(tables.writes({"plain": plain}).columns[1].cells) == ["1.000"]


def test_the_size_of_a_run() -> None:
    """2 900 trainers of 58 jobs and 500 services from a thousand nodes on; fewer below."""
    assert [(s.trainers, s.services) for s in map(Scale, (100, 1000, 5000))] == [
        (290, 50),
        (2900, 500),
        (2900, 500),
    ]


def test_ended_watches_are_said_of_each_phase() -> None:
    """A run in which one phase pays for more of them than that of another variant says so."""
    trainers = replace(_phase(100, 2.0), ended_watches=26)
    run = ScaleFigures(trainers, _phase(10, 1.0), others_percent=0.0)

    assert tables.ended_watches({"plain": run}).endswith("trainers / burst: plain 26 / 0")
