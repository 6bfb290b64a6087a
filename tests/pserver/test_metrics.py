"""What a scrape of a parameter server has of its status."""

from typing import Any

from pserver.metrics import PserverMetrics

STATUS: dict[str, Any] = {
    "pushes": {"applied": 3, "repeated": 2, "stale": 1},
    "generation": 4,
    "version": 5,
    "records": 60,
    "looked_up": 70,
    "clipped": 17,
    "non_finite": {"count": 8},
    "staleness": {"most": 9},
    "max_bytes": 1_000,
    "setbacks": {"count": 10, "steps": 11, "records": 12},
    "unsaved": {"seconds": 13.5},
    "serving": {
        "tables": {"users": {"rows": 14}, "items": {"rows": 15}},
        "memory": {"used_bytes": 500},
        "rate_factor": 0.5,
    },
}


def test_a_scrape_has_the_numbers_of_the_status() -> None:
    """Those of tables are sums."""
    lines = PserverMetrics().text(STATUS, intake_bytes=16).decode().splitlines()

    for line in (
        'pushes_total{outcome="applied"} 3.0',
        'pushes_total{outcome="repeated"} 2.0',
        'pushes_total{outcome="stale"} 1.0',
        "generation 4.0",
        "version 5.0",
        "records 60.0",
        "row_lookups_total 70.0",
        "non_finite_gradients_total 8.0",
        "highest_staleness_versions 9.0",
        "limit_bytes 1000.0",
        "rollbacks_total 10.0",
        "lost_versions_total 11.0",
        "lost_records_total 12.0",
        "unsaved_seconds 13.5",
        "rows 29.0",
        "used_bytes 500.0",
        "intake_bytes 16.0",
        "clipped_gradients_total 17.0",
        "rate_factor 0.5",
    ):
        assert f"edl_pserver_{line}" in lines


def test_before_the_first_generation_there_is_nothing_in_memory() -> None:
    """The numbers are there nonetheless."""
    empty = {**STATUS, "serving": None, "unsaved": None, "max_bytes": None}
    lines = PserverMetrics().text(empty, intake_bytes=0).decode().splitlines()

    for name in ("rows", "used_bytes", "limit_bytes", "unsaved_seconds", "intake_bytes"):
        assert f"edl_pserver_{name} 0.0" in lines
