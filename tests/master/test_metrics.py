"""What a scrape of the master has of its status."""

from typing import Any

from master.metrics import MasterMetrics
from runtime.metric_names import MetricType

NAMES = ("done_tasks", "leased_tasks", "returned_tasks", "dropped_tasks")
RECORDS = ("done_records", "dropped_records", "redone_records")
FIRST = dict(zip((*NAMES, *RECORDS), (1, 2, 3, 4, 10, 20, 5), strict=True))
SECOND = dict(zip((*NAMES, *RECORDS), (5, 0, 0, 1, 7, 1, 0), strict=True))
STATUS: dict[str, Any] = {
    "datasets": {"train": FIRST, "test": SECOND},
    "trainers": {"a": {}, "b": {}},
    "generation": 3,
    "lost_records": 11,
    "trained_again_records": 12,
    "rendezvous": {"members": [{}], "round": 8},
    "counts": {"failed_writes": 6, "failed_snapshots": 7},
    "setbacks": {"count": 2, "steps": 40, "records": 1280},
}


def test_a_scrape_has_the_numbers_of_the_status() -> None:
    """Those of data sets are sums; records that are trained again count again."""
    lines = MasterMetrics().text(STATUS).decode().splitlines()

    for line in (
        'tasks{outcome="done"} 6.0',
        'tasks{outcome="leased"} 2.0',
        'tasks{outcome="returned"} 3.0',
        'tasks{outcome="dropped"} 5.0',
        'records_total{outcome="done"} 22.0',
        'records_total{outcome="dropped"} 21.0',
        "lost_records_total 11.0",
        "trained_again_records_total 12.0",
        "trainers 2.0",
        "generation 3.0",
        "rendezvous_members 1.0",
        "rendezvous_round 8.0",
        "rollbacks_total 2.0",
        "redone_records_total 5.0",
        "journal_failures_total 6.0",
        "snapshot_failures_total 7.0",
        "rollback_lost_steps 40.0",
        "rollback_lost_records 1280.0",
    ):
        assert f"edl_master_{line}" in lines


def test_numbers_that_may_fall_are_gauges() -> None:
    """A report of a trainer may correct what a rollback cost."""
    metrics = MasterMetrics()
    metrics.text(STATUS)
    corrected = {**STATUS, "setbacks": {"count": 2, "steps": 39, "records": 1248}}
    types = {
        description.name.removeprefix("edl_master_"): description.type
        for description in metrics.metrics.descriptions
    }

    assert "edl_master_rollback_lost_steps 39.0" in metrics.text(corrected).decode()
    assert types["rollback_lost_steps"] is types["rollback_lost_records"] is MetricType.GAUGE
    assert types["lost_records_total"] is MetricType.COUNTER
